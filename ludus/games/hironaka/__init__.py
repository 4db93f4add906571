"""The mathematics of Hironaka's polyhedra game, which its rules, players and kernels share."""
