"""One outside system a file, behind the small Protocols of ``ports``."""
