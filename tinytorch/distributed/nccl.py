class NCCLBackend:
    def __init__(self, host):
        raise RuntimeError("nccl is not there yet")
