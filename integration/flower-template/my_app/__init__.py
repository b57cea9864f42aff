"""A template: a convolutional network of your own, trained and unlearned with Flower."""
