package lanes_test

import (
	"errors"
	"strings"
	"testing"
)

// The scheduler ends no pod for the devices of one with a higher priority. That one gets the lane when the other
// goes.
func TestPriority(t *testing.T) {
	c := share(t)
	c.run(t)
	c.kubectl(t, "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}", "apply", "-f", "-")
	defer c.kubectl(t, "", "delete", "priorityclass", "high")
	c.lane(t, "low", "", "2")
	c.ready(t, "low")
	cpus := c.cpusOf(t, "low")
	claim := strings.ReplaceAll(claimTemplate, "%[1]s", "high")
	c.kubectl(t, strings.ReplaceAll(claim, "%[2]s", "{}")+c.podOf("high", "priorityClassName: high\n  resourceClaims: "+
		"[{name: lane, resourceClaimTemplateName: high}]", `claims: [{name: lane}], requests: {cpu: "1"}`, "2"), "apply", "-f", "-")
	c.says(t, "high", "Preemption is not helpful for scheduling")
	c.delete(t, "low")
	c.ready(t, "high")
	if now := c.cpusOf(t, "high"); now != cpus {
		t.Errorf("CPUs %s, those of the first were %s", now, cpus)
	}
	c.apart(t, cpus, "high")
	c.delete(t, "high")
	c.until(t, "the lane is released", c.noLanes)
}

// A DeviceTaintRule with NoExecute ends the pods with lanes, and no pod gets one until it has gone.
func TestTainted(t *testing.T) {
	c := share(t)
	c.run(t)
	versions := c.kubectl(t, "", "api-versions")
	version := ""
	for _, v := range strings.Fields(versions) {
		if strings.HasPrefix(v, "resource.k8s.io/") {
			out, err := c.tryKubectl(t, "", "get", "--raw", "/apis/"+v)
			if err == nil && strings.Contains(out, `"devicetaintrules"`) {
				version = v
			}
		}
	}
	if version == "" {
		t.Skip("skipped: the API server has no DeviceTaintRule: ", versions)
	}
	c.lane(t, "edge", "", "2")
	c.ready(t, "edge")
	rule := "{apiVersion: " + version + ", kind: DeviceTaintRule, metadata: {name: repair}, spec: {deviceSelector: {driver: isolane.dev}, " +
		"taint: {key: example.com/repair, effect: NoExecute}}}"
	c.kubectl(t, rule, "apply", "-f", "-")
	c.until(t, "the pod is evicted", func() error {
		if out, err := c.tryKubectl(t, "", "get", "pod", "edge"); err == nil {
			return errors.New(out)
		}
		return nil
	})
	c.until(t, "the lane is released", c.noLanes)
	c.kubectl(t, "", "delete", "resourceclaimtemplate", "edge")
	c.lane(t, "edge", "", "2")
	c.says(t, "edge", "cannot allocate all claims")
	c.kubectl(t, rule, "delete", "-f", "-")
	c.ready(t, "edge")
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
}
