package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// pinner is another plugin of the container runtime, which sets the CPUs of the containers of one pod.
type pinner struct{ pod string }

func (p pinner) CreateContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error,
) {
	a := &api.ContainerAdjustment{}
	if pod.Name == p.pod {
		a.SetLinuxCPUSetCPUs("0")
	}
	return a, nil, nil
}

// While a container runs whose CPUs another plugin has set, nothing is offered, and an event says why.
func TestOtherPlugin(t *testing.T) {
	c := share(t)
	c.run(t)
	plugin, err := stub.New(pinner{pod: "pinned"}, stub.WithPluginName("pinner"), stub.WithPluginIdx("90"),
		stub.WithSocketPath(c.node.Path("/run/nri/nri.sock")), stub.WithOnClose(func() {}))
	if err == nil {
		err = plugin.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer plugin.Stop()
	c.spin(t, "other", "", "1")
	c.offers(t, true)
	c.spin(t, "pinned", "", "1")
	c.offers(t, false)
	c.until(t, "an event says why", func() error {
		node, err := c.tryKubectl(t, "", "describe", "node", c.node.Name)
		if err == nil && !strings.Contains(node, "container default/pinned/main: another plugin of the container runtime has set its CPUs (0): no lanes are offered") {
			err = errors.New(node)
		}
		return err
	})
	c.kubectl(t, "", "delete", "pod", "pinned", "--wait")
	c.offers(t, true)
}

// offers waits until the node offers CPUs, or none.
func (c *cluster) offers(t *testing.T, want bool) {
	t.Helper()
	c.until(t, fmt.Sprintf("CPUs are offered: %t", want), func() error {
		cpus, err := c.tryKubectl(t, "", "get", "resourceslices", "-o", "jsonpath={.items[*].spec.devices[*].capacity.cpus.value}")
		if err == nil && (strings.TrimSpace(cpus) != "") != want {
			err = fmt.Errorf("CPUs %q", cpus)
		}
		return err
	})
}
