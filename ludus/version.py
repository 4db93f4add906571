"""The version of ludus."""

VERSION = "0.1.0"
