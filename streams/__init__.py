"""The three roles: ``ingest``, ``memory`` and ``analytics``; what they compute is in ``core`` and knows no broker."""
