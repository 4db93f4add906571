"""Config files: strict YAML, typed sections, overrides, migrations, and the registry of kinds."""
