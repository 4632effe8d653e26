"""Metrics for Prometheus. Labels are routes, methods and statuses, never texts, keys or addresses."""

from collections.abc import Iterator

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from knnmt.serve.calls import BOUNDS, Server, caller_of
from knnmt.service.service import Service

router = APIRouter(prefix="/v1", tags=["knnmt"])


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Metrics in the format of Prometheus."""
    caller = await caller_of(request, role="admin", counted=False)
    lines = metric_lines(request.app.state.server, caller.service)
    return PlainTextResponse("".join(f"{line}\n" for line in lines), media_type="text/plain; version=0.0.4")


def metric_lines(server: Server, service: Service) -> Iterator[str]:
    counts = server.metrics
    yield "# TYPE knnmt_requests_total counter"
    for (method, route, status), number in sorted(counts.requests.items()):
        yield f'knnmt_requests_total{{method="{method}",route="{route}",status="{status}"}} {number}'
    yield "# TYPE knnmt_request_seconds histogram"
    below = 0
    for bound, number in zip((*BOUNDS, "+Inf"), counts.seconds, strict=True):
        below += number
        yield f'knnmt_request_seconds_bucket{{le="{bound}"}} {below}'
    yield f"knnmt_request_seconds_sum {counts.total:.6f}"
    yield f"knnmt_request_seconds_count {below}"
    yield from of_service(service)


def of_service(service: Service) -> Iterator[str]:
    """Queues and memories. Engines are labelled by number, because the name of a model may be a path."""
    for name, kind in (("waiting_texts", "gauge"), ("decoded_texts_total", "counter"), ("batches_total", "counter")):
        yield f"# TYPE knnmt_{name} {kind}"
        for number, scheduler in enumerate(service.schedulers.values()):
            value = {"waiting_texts": scheduler.waiting, "decoded_texts_total": scheduler.texts}
            yield f'knnmt_{name}{{engine="{number}"}} {value.get(name, scheduler.batches)}'
    yield "# TYPE knnmt_store_version gauge"
    for _, shelved in service.shelf.stores():
        yield f'knnmt_store_version{{store="{shelved.name}"}} {shelved.store.manifest.version}'
