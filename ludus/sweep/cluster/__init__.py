"""Ray for sweeps.

engine   the process of the sweep
driver   its child, the driver of Ray, with a warden that ends what the driver leaves
host     an actor, on any machine
worker   its child, which executes runs

Ray itself runs in no process of the user's: its environment is set before it is imported, and what it prints,
aborts or replaces stays in the driver. A host is thin; the worker is the one that the engine `local` has.
"""
