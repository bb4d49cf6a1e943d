"""What config/README.md says of RouteWise."""

ROUTEWISE = """\
## Cost and latency: RouteWise

With `router: routewise` requests go to the mixture of routes that answers soonest, on average, for
what they may cost. `config/examples/routewise` shows it on two simulated engines:
`concord up --config config/examples/routewise`.

- Each candidate is priced for the request: its prompt, and the answer that is to be expected, by
  the `pricing` of the route, else of the model. How fast it is, is learned: the mean time to the
  first output in the last `latency_window_sec`, each failure counted as a minute.
- `budget_alpha` says what requests may cost on average: 0 as with the cheapest candidate alone, 1
  as with the dearest. At most two routes share the requests then, and `concord explain` tells their
  shares. With two routes the faster one gets `budget_alpha` of them, whatever they cost.
- Who may be used is judged in the same step: a circuit that opens, a limit or a pause makes the
  mixture another one at once. After a failure the rest is mixed anew.
- The coordinator learns all this, once in the cluster, from how attempts end. Of what has had no
  traffic it knows nothing: an endpoint that is not known is taken to be slow, all traffic goes to
  the cheapest one, and no other is ever measured. So switch `routewise_probe_enabled` on, which
  samples idle endpoints with requests for one token.

With `latency_hedge_mode: probability_target` a stream that has no output when it should have is
sent to a second route, too. It goes on with the one that answers first; the other is cut off, which
says nothing against it, but its prompt is paid for. That is done once at most, as late as can be:
at the last moment at which one of the two is 99 % sure to have output by `latency_slo_sec`, as far
as both have been measured, on the cheapest route for which that holds. The second attempt needs
room like any other, and counts as failover, which has a budget (`retry_budget`).

Routes need not charge for each request. With `provider_type: concurrency` a route costs nothing and
takes so many requests at a time. With `provider_type: quota` it takes so many in a period. What
their use is worth rises as the quota goes down, from what the cheaper requests cost on demand to
what the dearer ones do (`envelope_…`), so that a quota is kept for requests that are worth it. A
pool with a name (`quota_pool`, `concurrency_pool`) is shared by all routes that name it, across
models. Both hold exactly, whatever the number of replicas.

What is left of a quota its provider says; `quota_fetchers` in routing.yaml tells how it is asked,
and `quota_source` which of its usages is meant. What is used after it was asked is counted on top.

```yaml
quota_fetchers:
  acme:
    url: https://api.acme.example/v1/usage
    headers: {authorization: "Bearer ${ACME_API_KEY}"}
    usages:
      - {usage_label: daily, unit: requests, used: data.daily.used, limit: data.daily.limit,
         reset_at: data.daily.resets_at}
```

With `quota_source: {provider: local, usage_label: requests, unit: day}` nobody is asked: requests
are counted in the cluster, from midnight UTC on. A quota that nobody reports is not used; `check`,
`status`, `/health/deep` and the log say so.

Operators change `budget_alpha` and a few others at run time
(`PATCH /admin/routewise/model-settings/routewise_budget_alpha?model_id=…` with `{"value": 0.5}`);
what was learned is at `GET /admin/routewise/calibration`.
"""
