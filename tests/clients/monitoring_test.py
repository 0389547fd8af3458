"""A scrape of /metrics, read by Prometheus' own parser."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def scrape(url):
    with urllib.request.urlopen(url + "/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = response.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families, name, sample=None):
    return next(s.value for s in families[name].samples if s.name == (sample or name))


def test_metrics(server_url):
    before = scrape(server_url)
    body = (b'{"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, '
            b'"thinking": {"type": "disabled"}}')
    request = urllib.request.Request(server_url + "/v1/chat/completions", body)
    urllib.request.urlopen(request).read()
    after = scrape(server_url)
    for family in after.values():
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
    for name in ("llamacpp:tokens_predicted", "vllm:generation_tokens", "cachalot:generated_tokens"):
        total = name + "_total"
        assert value(after, name, total) - value(before, name, total) == 9, name
    latency = after["vllm:time_to_first_token_seconds"].samples
    buckets = [s.value for s in latency if s.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == next(s.value for s in latency if s.name.endswith("_count")) > 0
    assert value(after, "llamacpp:requests_processing") == 0
