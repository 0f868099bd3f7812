"""Versioned prompt texts, ``NAME.LANGUAGE.vN.md``. A change is a new file and a new version, never an edit."""

VERSION = 1
"""Version that ``prompt.assemble`` uses; part of the settings' digest."""
