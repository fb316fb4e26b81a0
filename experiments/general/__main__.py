"""Write the training data of the general model."""

from experiments.general.mixture import main

main()
