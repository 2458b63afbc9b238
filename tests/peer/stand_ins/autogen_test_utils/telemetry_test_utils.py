"""Spans kept in memory, for the tests that look at them."""

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class MyTestExporter(InMemorySpanExporter):
    """AutoGen's name for an exporter that can be asked for its spans."""

    def get_exported_spans(self) -> list[ReadableSpan]:
        return list(self.get_finished_spans())


def get_test_tracer_provider(exporter: MyTestExporter) -> TracerProvider:
    """A provider that hands every span to `exporter` as soon as it ends."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider
