"""Which of several pre-trained models to begin from: scores of transferability, each a function."""
