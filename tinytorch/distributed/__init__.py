"""Programs on several processes: process groups, collectives and messages, over MPI or NCCL."""

from tinytorch.distributed.collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from tinytorch.distributed.group import (
    GroupMember,
    ProcessGroup,
    Work,
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_initialized,
    new_group,
)
from tinytorch.distributed.mpi import is_available, is_gloo_available, is_mpi_available
from tinytorch.distributed.nccl import NCCLBackend, is_nccl_available
from tinytorch.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    scatter_object_list,
)
from tinytorch.distributed.p2p import (
    P2POp,
    batch_isend_irecv,
    irecv,
    isend,
    monitored_barrier,
    recv,
    send,
)
from tinytorch.distributed.types import DistBackendError, DistError, ReduceOp
