"""Policy gradients of text agents: advantages of answers, and gradient steps through an API."""
