"""What an on-policy agent learns from: rollouts, their estimates, and how far they move the policy."""
