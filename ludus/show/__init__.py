"""What people see of a run: the display, progress, and the report."""
