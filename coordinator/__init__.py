"""The coordinator: what is to be done once in a cluster, and not once per replica.

Any number of processes may run; one of them, the leader, works. No request needs any.

| part       | what                                                                        |
|------------|-----------------------------------------------------------------------------|
| `lease`    | one leader at a time, under an epoch that only rises; losing it ends the work |
| `probe`    | asks engines after their health                                             |
| `recovery` | tries endpoints that are out, so that no client has to                      |
| `reap`     | tidies up what no replica does                                              |
| `calibrate`| learns what strategies go by from how attempts end (`learning`, `window`)    |
| `quota`    | asks providers what is left of quotas                                        |
| `sample`   | asks endpoints of such strategies, where traffic does not show how they are  |
| `run`      | the leader's work, and the composition of all this                          |
| `serve`    | the process: `/livez`, `/readyz`, signals                                   |

It uses the gateway's shared layers, and no replica knows of it but by what it writes into Redis.
"""
