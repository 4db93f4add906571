"""Train a real network in a plain loop, eagerly or with torch.compile of network and loss."""

import torch

from benchmarks import _real_work as shared


def measure(
    work: str, device: str, compiled: bool, channels_last: bool = False
) -> dict[str, float]:
    """Return the rate, the memory and the time to the first step; images may have their channels last."""
    shared.be_exact()
    todo = shared.WORKS[device][work]
    watch = shared.Stopwatch(todo, device)
    network = shared.make_network(todo, device)
    if channels_last:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = shared.make_optimizer(network)

    def loss_fn(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return shared.loss_fn(network(inputs), targets)

    step = torch.compile(loss_fn) if compiled else loss_fn
    for inputs, targets in shared.batches(todo, device):
        if channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = step(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), shared.MAX_GRAD_NORM)
        optimizer.step()
        if watch():
            break
    assert watch.answer is not None
    return watch.answer
