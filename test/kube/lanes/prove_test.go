package lanes_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/test/kube"
	"isolane.dev/isolane/test/kube/bed"
)

// shortProof has two programs that serve, and windows too short for figures.
const shortProof = `apiVersion: isolane.dev/v1alpha3
kind: Scenario
metadata: {name: short, title: Pods}
spec:
  factors:
    - {name: noise, levels: [quiet, {name: noisy, neighbours: [{name: cpu}]}]}
    - {name: placement, levels: [floating, pinned, lane]}
    - {name: path, levels: [bridge, macvlan]}
    - {name: runtime, where: {placement: [lane], noise: [quiet]}, levels: [pod, host]}
  baseline: quiet-floating-bridge
  lane: {cpus: {count: 1}, scheduling: {busyPoll: true}}
  client: {policy: rr, priority: 50}
  stealBudget: 100 # figures are not the point
  probes:
    - {name: trip, kind: echo, mode: open, rate: 500}
    - {name: down, kind: iperf3, direction: down}
  modes: {quick: {blocks: 1, windows: {echo: {warmup: 100ms, measure: 500ms}, iperf3: {measure: 1s}}}}
`

// A session with application and neighbours in pods, its self-test, and what is left if it is killed.
func TestProve(t *testing.T) {
	for _, program := range []string{"stress-ng", "iperf3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("skipped: ", err)
		}
	}
	c := beside(t)
	scenario, dir := filepath.Join(t.TempDir(), "short.yaml"), filepath.Join(t.TempDir(), "results")
	if err := os.WriteFile(scenario, []byte(shortProof), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("killed", func(t *testing.T) {
		var said bytes.Buffer
		prove := c.command(t, "prove", scenario, "--runtime=pod", "--cells=quiet-floating,noisy-lane", "--out="+dir+"-killed")
		prove.Stdout, prove.Stderr = &said, &said
		defer func() { t.Logf("isolane prove, killed:\n%s", &said) }()
		if err := prove.Start(); err != nil {
			t.Fatal(err)
		}
		c.until(t, "a pod is there", func() error {
			pods, err := c.tryKubectl(t, "", "get", "pods", "-o", "name")
			if err == nil && !strings.Contains(pods, "prove-application") {
				err = errors.New(pods)
			}
			return err
		})
		time.Sleep(bed.Patient(time.Second))
		if err := prove.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = prove.Wait() // killed
		c.isolane(t, "recover")
	})
	t.Run("session", func(t *testing.T) {
		out := c.isolane(t, "prove", scenario, "--runtime=pod", "--seed=1", "--out="+dir)
		for _, want := range []string{"pinned and 1 more are no cells: a cpuset of its own is what the kubelet's CPU manager gives",
			"pods of node n0 (kubelet v1.37.1)"} {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("expected %q", want)
			}
		}
		c.counted(t, dir, 5)
	})
	t.Run("static node", func(t *testing.T) {
		flags := []string{"prove", scenario, "--runtime=pod", "--static-node=" + c.Nodes[1].Name, "--seed=1", "--out=" + dir + "-static"}
		inside := c.command(t, flags...)
		if out, err := inside.CombinedOutput(); err == nil || !strings.Contains(string(out), "outside of both nodes' networks") {
			t.Errorf("in the network of a node: %v: %s", err, out)
		}
		c.outside(t, flags...)
		c.counted(t, dir+"-static", 7)
	})
	t.Run("self-test", func(t *testing.T) {
		if out := c.isolane(t, "prove", scenario, "--runtime=pod", "--self-test"); strings.Count(out, "caught: ") != 3 ||
			!strings.Contains(out, "caught: cpuset of the lane's container widened") {
			t.Error("expected three faults to be caught")
		}
	})
	if pods := c.kubectl(t, "", "get", "pods,resourceclaims,resourceclaimtemplates", "-o", "name"); pods != "" {
		t.Errorf("left: %s", pods)
	}
	c.until(t, "the lane is released", c.noLanes)
}

// TestFigures measures testdata/pods.yaml, or $ISOLANE_KUBE_SCENARIO, and leaves its results in a directory.
func TestFigures(t *testing.T) {
	dir := os.Getenv("ISOLANE_KUBE_RESULTS")
	if dir == "" {
		t.Skip("skipped: a measurement of half an hour, ISOLANE_KUBE_RESULTS=DIRECTORY makes it")
	}
	c := beside(t)
	scenario := cmp.Or(os.Getenv("ISOLANE_KUBE_SCENARIO"), "testdata/pods.yaml")
	c.outside(t, "prove", scenario, "--runtime=pod", "--static-node="+c.Nodes[1].Name, "--standard", "--seed=7", "--out="+dir)
	c.until(t, "the lane is released", c.noLanes)
}

// beside starts a node part, and a second node whose kubelet gives CPUs to Guaranteed pods. Both know their images.
func beside(t *testing.T) *cluster {
	t.Helper()
	static := map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
	c := start(t, bed.Options{Nodes: []bed.NodeOptions{{}, {Kubelet: static}}})
	c.run(t)
	for _, n := range c.Nodes {
		c.until(t, n.Name+" says which images it has", func() error {
			images, err := c.tryKubectl(t, "", "get", "node", n.Name, "-o", "jsonpath={.status.images[*].names}")
			if err == nil && images == "" {
				err = errors.New("none")
			}
			return err
		})
	}
	return c
}

// counted checks the runs of a session: all cells have one that counts, and the application stays on its CPU
// if it has one.
func (c *cluster) counted(t *testing.T, dir string, cells int) {
	t.Helper()
	var s struct {
		Pods struct{ Node string }
		Runs []struct {
			Cell    string
			Block   int
			Void    []string
			Witness struct {
				Threads []struct{ Role, Seen, Planned string }
			}
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil || s.Pods.Node != c.node.Name {
		t.Fatal(err, s.Pods)
	}
	used := map[string]bool{}
	for _, r := range s.Runs {
		t.Logf("%s, block %d: void %q", r.Cell, r.Block, r.Void)
		if len(r.Void) == 0 && r.Block > 0 {
			used[r.Cell] = true
		}
		for _, th := range r.Witness.Threads {
			if !strings.HasSuffix(r.Cell, "-floating") && th.Role == "application" && th.Seen != "" && th.Seen != "1" {
				t.Errorf("%s: a thread of the application ran on CPUs %s", r.Cell, th.Seen)
			}
		}
	}
	if len(used) != cells {
		t.Errorf("of these cells runs count: %v", used)
	}
}

// command returns a call of isolane on the node, with kubectl and an administrator's rights.
func (c *cluster) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	programs, err := kube.Programs()
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.node.Command(context.WithoutCancel(t.Context()), c.programs+"/isolane", args...)
	cmd.Env = slices.Concat(os.Environ(), []string{"KUBECONFIG=" + c.Kubeconfig, "PATH=" + programs + ":" + os.Getenv("PATH")})
	return cmd
}

// outside runs isolane outside of both nodes' networks.
func (c *cluster) outside(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.programs+"/isolane", args...)
	cmd.Env = c.command(t).Env
	out, err := cmd.CombinedOutput()
	t.Logf("isolane %s:\n%s", strings.Join(args, " "), out)
	if err != nil {
		t.Fatal(err)
	}
}

// isolane runs it there, and returns its output.
func (c *cluster) isolane(t *testing.T, args ...string) string {
	t.Helper()
	var said bytes.Buffer
	cmd := c.command(t, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	t.Logf("isolane %s:\n%s", strings.Join(args, " "), &said)
	if err != nil {
		t.Fatal(err)
	}
	return said.String()
}
