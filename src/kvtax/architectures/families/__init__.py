"""One file per family of config.json; `architectures.registry` says which model types each one understands."""
