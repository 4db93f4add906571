"""Who answers: known labels, a function, a person."""
