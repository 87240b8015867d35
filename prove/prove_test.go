package prove

import (
	"context"

	"isolane.dev/isolane/factor"
	factornoise "isolane.dev/isolane/factor/noise"
	"isolane.dev/isolane/factor/path"
	"isolane.dev/isolane/factor/placement"
	factorruntime "isolane.dev/isolane/factor/runtime"
	"isolane.dev/isolane/factor/setting"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/testbed"

	"errors"
	"testing"
	"testing/fstest"
	"time"

	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/direct"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/netpath/sriov"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/echo"
	"isolane.dev/isolane/probe/iperf3"
	"isolane.dev/isolane/results"
)

func edge(t *testing.T) scenario.Scenario {
	t.Helper()
	s, err := Load("edge", kinds())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func kinds() scenario.Drivers {
	names := map[string]string{"bridge": "", "bridge-gro": "", "macvlan": "", "express": "", "ovs": "", "ovs-dpdk": "", "direct": "", "sriov": "", "vpp": ""}
	return scenario.Drivers{Factors: []factor.Driver{placement.Driver{}, factornoise.Driver{}, path.Driver{Names: names}, factorruntime.Driver{}, setting.Driver{}},
		Probes: []probe.Driver{echo.Driver{}, iperf3.Driver{}}}
}

func TestEstimate(t *testing.T) {
	s := edge(t)
	r := runner{Bed: testbed.Bed{Scenario: s, Mode: s.Spec.Modes["quick"]}}
	if total := 24 * r.Estimate(); total > 200*time.Second {
		t.Errorf("--quick is estimated to take %s: more than three minutes and a bit", total)
	}
}

// impossiblePath is a path that this kernel cannot do.
type impossiblePath struct{ bridge.Path }

func (impossiblePath) Name() string     { return "express" }
func (impossiblePath) Supported() error { return errors.New("express needs Linux 5.10") }

// possiblePath is one that this host can do.
type possiblePath struct{ bridge.Path }

func (possiblePath) Name() string     { return "ovs" }
func (possiblePath) Supported() error { return nil }

type noVPP struct{ bridge.Path }

func (noVPP) Name() string     { return "vpp" }
func (noVPP) Supported() error { return errors.New("no VPP runs") }

type noDPDK struct{ bridge.Path }

func (noDPDK) Name() string     { return "ovs-dpdk" }
func (noDPDK) Supported() error { return errors.New("no Open vSwitch with DPDK runs") }

// Cells with a path that this host lacks, or with needs that fail, are none.
func TestNeeds(t *testing.T) {
	sc := edge(t)
	s := results.Session{Cells: sc.AllCells()}
	r := runner{Bed: testbed.Bed{Scenario: sc, Kinds: kinds(), Paths: []testbed.Path{direct.Path{}, bridge.Path{}, bridge.Path{GRO: true},
		macvlan.Path{}, impossiblePath{}, possiblePath{}, sriov.Path{}, noVPP{}, noDPDK{}},
		Layouts: map[string]layout.Layout{}, Root: fstest.MapFS{"proc/net/vlan/config": {}}}}
	lacks := map[string]string{"express": "express needs Linux 5.10", "qinq": "express needs Linux 5.10", "vpp": "no VPP runs", "ovs-dpdk": "no Open vSwitch with DPDK runs", "sriov": "no network card has 2 free " +
		"virtual functions, for the client and the application: echo N > /sys/class/net/CARD/device/sriov_numvfs"}
	for _, c := range s.Cells[1:] { // the first is of another boot
		r.Layouts[c.Name] = layout.Layout{}
	}
	impossible := map[string]error{}
	if err := r.needs(t.Context(), host.Host{}, results.EveryCell(&s), impossible); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Cells[1:] {
		why, out := impossible[c.Name]
		want := lacks[c.Levels["path"]]
		if _, planned := r.Layouts[c.Name]; out != (want != "") || planned == out || out && why.Error() != want {
			t.Errorf("%s: %v, planned: %v", c.Name, why, planned)
		}
	}
	if impossible[s.Cells[0].Name] != nil {
		t.Errorf("a cell of another boot: %v", impossible[s.Cells[0].Name])
	}
}

// A cell with one instance, such as in a lane in force, is none for a probe that needs several.
func TestCellsWithOneInstance(t *testing.T) {
	sc := edge(t)
	crowd := sc.Spec.Probes[0]
	crowd.Probe = inCompany{crowd.Probe}
	sc.Spec.Probes = []scenario.Probe{crowd}
	s := results.Session{Cells: sc.AllCells()[:1]}
	r := runner{Bed: testbed.Bed{Scenario: sc, Paths: []testbed.Path{bridge.Path{}}, Layouts: map[string]layout.Layout{s.Cells[0].Name: {}}}}
	impossible := map[string]error{}
	err := r.needs(t.Context(), host.Host{}, results.EveryCell(&s), impossible)
	if why := impossible[s.Cells[0].Name]; err != nil || why == nil || why.Error() != "probe "+crowd.Name+": expected company" {
		t.Errorf("%v, %v", why, err)
	}
}

// inCompany is a probe that needs several instances of the application.
type inCompany struct{ probe.Probe }

func (inCompany) Among(instances int) error {
	if instances > 1 {
		return nil
	}
	return errors.New("expected company")
}

// What went wrong beside an interruption is said, but for that it was one.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	left := errors.New("left on the host")
	if err := interrupted(ctx, left); errors.Is(err, ErrInterrupted) || !errors.Is(err, left) {
		t.Error(err)
	}
	cancel()
	if err := interrupted(ctx, left); !errors.Is(err, ErrInterrupted) || !errors.Is(err, left) {
		t.Error(err)
	}
	if err := interrupted(ctx, ctx.Err()); err.Error() != ErrInterrupted.Error() {
		t.Error(err)
	}
}
