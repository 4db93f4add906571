"""Files read without surprises, names that find classes, versions, and what every config has."""
