"""The commands of active learning."""
