"""Amazon SageMaker HyperPod: what it is told to create, and what its nodes are told to become."""
