"""Raise the worst class of a trained model under attack by changing its last layer, without training the network."""
