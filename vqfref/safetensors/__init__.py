"""safetensors, the container of HF models and of UQFF shards: reader."""
