"""Games that live on the device: thousands of them as one batch of tensors, with those who learn to play."""
