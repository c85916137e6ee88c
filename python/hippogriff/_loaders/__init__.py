"""`hippogriff bench loaders`: what there is here to load a model with, side by side."""
