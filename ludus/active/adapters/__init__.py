"""Models and strategies of other libraries, in the shapes that an active run knows."""
