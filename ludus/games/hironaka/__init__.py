"""The mathematics of Hironaka's polyhedra game, shared by its rules, players and kernels."""
