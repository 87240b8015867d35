package netpath_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/ovs"
	"isolane.dev/isolane/test/vpptest"
)

// switched is a switch that a path needs.
type switched struct {
	shown func() string // what is in it
	tools []string      // that change it
}

// openVSwitch starts one of the test's own, which ends with the test.
func openVSwitch(t *testing.T) switched {
	t.Helper()
	with := vswitchd(t, "ovs-vswitchd", "other_config:vlan-limit=2")
	is := "of the kernel" // as in the lab
	if (ovs.Path{}).WireChecksums() {
		is = "in user space"
	}
	t.Log("data path", is)
	return with
}

// openVSwitchDPDK starts one with DPDK, on ordinary pages.
func openVSwitchDPDK(t *testing.T) switched {
	t.Helper()
	made := "/run/dpdk/islt" // which DPDK makes, and leaves
	if _, err := os.Stat(filepath.Dir(made)); err != nil {
		made = filepath.Dir(made)
	}
	t.Cleanup(func() { _ = os.RemoveAll(made) })
	return vswitchd(t, "ovs-vswitchd-dpdk", "other_config:dpdk-init=true", "other_config:pmd-cpu-mask=1",
		"other_config:dpdk-extra=--no-pci --no-huge --legacy-mem -m 512 --no-telemetry --file-prefix=islt")
}

func vswitchd(t *testing.T, program string, settings ...string) switched {
	t.Helper()
	for _, device := range []string{"ovs-netdev", "ovs-system"} {
		if _, err := os.Stat("/sys/class/net/" + device); err == nil {
			t.Skip("skipped: " + device + " is there: of an Open vSwitch of this host, or of one that was killed")
		}
	}
	dir := hosttest.OpenVSwitch(t, "../bin/programs/usr")
	hosttest.Need(t, hosttest.Program(program))
	path, err := exec.LookPath(program)
	if err == nil { // its sockets have its name
		err = os.Symlink(path, dir+"/ovs-vswitchd")
	}
	if err != nil {
		t.Fatal(err)
	}
	daemon := func(name, program string, argv ...string) {
		t.Helper()
		command(t, append([]string{program, "--detach", "--no-chdir", "--pidfile", "--log-file=" + dir + "/" + name + ".log",
			"-vconsole:off"}, argv...)...)
		t.Cleanup(func() {
			command(t, "ovs-appctl", "--timeout=10", "--target="+name, "exit")
			there := func() bool { _, serr := os.Stat(dir + "/" + name + ".pid"); return serr == nil }
			for begun := time.Now(); there() && time.Since(begun) < 10*time.Second; {
				<-time.After(10 * time.Millisecond)
			}
			if there() {
				t.Errorf("%s has not ended", name)
			}
		})
	}
	t.Cleanup(func() { // in user space it outlives its daemon
		if _, serr := os.Stat("/sys/class/net/ovs-netdev"); serr == nil {
			command(t, "ip", "link", "del", "ovs-netdev")
		}
	})
	daemon("ovsdb-server", "ovsdb-server", dir+"/conf.db", "--remote=punix:"+dir+"/db.sock")
	command(t, append([]string{"ovs-vsctl", "--no-wait", "init", "--", "set", "Open_vSwitch", "."}, settings...)...)
	daemon("ovs-vswitchd", dir+"/ovs-vswitchd", "unix:"+dir+"/db.sock")
	return switched{tools: []string{"ovs-vsctl", "ovs-ofctl"},
		shown: func() string {
			return command(t, "ovs-vsctl", "show", "--", "get", "Open_vSwitch", ".", "other_config")
		}}
}

// virtioUser is the workload of a lane by vhost-user: DPDK's testpmd hands all frames on between the lane's port and a
// device of a namespace, which has the lane's MAC address, takes longer frames, and sends nothing by itself.
func virtioUser(t *testing.T, name string, v netpath.VhostUser) place {
	t.Helper()
	const device = "eth0"
	netns, port := "islt-"+name, netpath.Port(name)
	command(t, "ip", "netns", "add", netns)
	t.Cleanup(func() { command(t, "ip", "netns", "del", netns) })
	command(t, "ip", "netns", "exec", netns, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cpu := strconv.Itoa(runtime.NumCPU() - 1) // the switch has the first
	pmd := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", "netns", "exec", netns, "dpdk-testpmd",
		"--no-pci", "--no-shconf", "--no-telemetry", "--no-huge", "-m", "128", "--lcores", "0@"+cpu+",1@"+cpu,
		"--vdev", "net_virtio_user0,server=1,path="+v.Socket+",mac="+v.MAC,
		"--vdev", "net_tap0,iface="+device+",mac="+v.MAC,
		"--", "--auto-start", "--forward-mode=io", "--total-num-mbufs=4096", "--mbuf-size=10240", "--stats-period=60")
	pmd.Stdout, pmd.Stderr = log, log
	if err := pmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = pmd.Process.Kill()
		_ = pmd.Wait()
	})
	for begun := time.Now(); ; <-time.After(100 * time.Millisecond) {
		linked := command(t, "ovs-vsctl", "--timeout=10", "get", "interface", port, "link_state")
		link, _ := exec.CommandContext(t.Context(), "ip", "-n", netns, "link", "show", "up", "dev", device).Output()
		if linked == "up\n" && len(link) > 0 {
			break
		}
		if time.Since(begun) > 30*time.Second {
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("%s: link_state %s: %s%s", port, linked, link, said)
		}
	}
	command(t, "ip", "-n", netns, "link", "set", device, "mtu", "9000")
	return at(t, netns, device)
}

// vppCard is a card that VPP has itself.
const vppCard = "GigabitEthernet3/0/0"

// standInVPP is what stands in for a VPP that runs.
func standInVPP(t *testing.T) switched {
	t.Helper()
	vpptest.Install(t)
	vpptest.VPP{Version: "26.10-rc0", Faces: map[string]*vpptest.Face{"local0": {}, vppCard: {Up: true}},
		Domains: map[string]bool{"1": true}}.Run(t)
	return switched{tools: []string{"vppctl"}, shown: func() string {
		v, err := vpptest.Read()
		if err != nil {
			t.Fatal(err)
		}
		return v.String()
	}}
}
