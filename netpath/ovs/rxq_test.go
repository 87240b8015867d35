package ovs_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath/ovs"
	"isolane.dev/isolane/plan"
)

// A database of Open vSwitch's, without a switch, has the receive queues of the lane's card, and what was before.
func TestReceiveQueues(t *testing.T) {
	dir := hosttest.OpenVSwitch(t, "../../bin/programs/usr")
	run := func(argv ...string) string {
		out, rerr := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
		if rerr != nil {
			t.Fatalf("%q: %s", argv, out)
		}
		return strings.TrimSpace(string(out))
	}
	server := exec.Command("ovsdb-server", dir+"/conf.db", "--remote=punix:"+dir+"/db.sock", "--unixctl="+dir+"/ctl", "--no-chdir")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill() // it may have ended
		_ = server.Wait()         // it was killed
	}()
	run("ovs-vsctl", "--retry", "--no-wait", "init", "--", "add-br", "br", "--", "add-port", "br", "nic", "--", "set", "Interface",
		"nic", "type=dpdk", "options:dpdk-devargs=0000:3b:00.0", "options:n_rxq=7")
	l := plan.Lane{Name: "switch", CPUs: cpuset.MustParse("1-4"), Devices: []plan.Device{{Address: "0000:3b:00.0"}},
		Spec: lane.Spec{Network: lane.Network{Device: "0000:3b:00.0", Queues: 3}}}
	steps, err := ovs.Path{}.SwitchSteps(host.Host{}, []plan.Lane{l})
	if err != nil {
		t.Fatal(err)
	}
	for i := range steps {
		s, op := &steps[i], ovs.Ops()[steps[i].Kind]
		if s.Before, err = op.Read(context.Background(), *s); err == nil {
			err = op.Write(context.Background(), *s, s.After)
		}
		if err != nil {
			t.Fatal(s, err)
		}
		if now, rerr := op.Read(context.Background(), *s); now != s.After || rerr != nil {
			t.Errorf("%v reads back as %q, %v", *s, now, rerr)
		}
	}
	get := func() string {
		return run("ovs-vsctl", "get", "Interface", "nic", "options:n_rxq", "other_config")
	}
	if got, want := get(), "\"3\"\n{pmd-rxq-affinity=\"0:2,1:3,2:2\"}"; got != want {
		t.Errorf("found %s, expected %s", got, want)
	}
	for _, s := range steps {
		if err = ovs.Ops()[s.Kind].Write(context.Background(), s, s.Before); err != nil {
			t.Error(err)
		}
	}
	if got, want := get(), "\"7\"\n{}"; got != want {
		t.Errorf("taken back: found %s, expected %s", got, want)
	}
	run("ovs-vsctl", "--no-wait", "del-port", "nic")
	rxq := journal.Step{Kind: ovs.KindRxq, Target: "0000:3b:00.0", After: "3 0:2"}
	if err = ovs.Ops()[ovs.KindRxq].Write(context.Background(), rxq, rxq.After); err == nil || !strings.Contains(err.Error(), "add-port") {
		t.Error(err)
	}
}
