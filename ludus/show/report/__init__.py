"""HTML report of one run or several: its curves, charts and sections."""
