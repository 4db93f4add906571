"""What agents begin with: the weights of earlier runs, and what they learn alone before they meet."""
