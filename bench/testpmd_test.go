package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/frames"
)

// frameSettings are those of both ends: AF_XDP, the shortest frames, as many as the device takes.
const frameSettings = "{socket: xdp, size: 64, rate: max, wait: spin}"

// probeFrames makes this binary the generator or the forwarder of `isolane probe frames`, as its argument says.
func probeFrames() (bool, error) {
	if os.Getenv("ISOLANE_BENCH") != "frames" {
		return false, nil
	}
	p, err := frames.Driver{}.Read([]byte(frameSettings))
	if err != nil {
		return true, err
	}
	c := probe.Conditions{Name: "sent", Address: netip.MustParseAddrPort(server + ":7009"), Window: time.Minute}
	if os.Args[1] == "serve" {
		return true, p.(frames.Probe).Serve(context.Background(), c, os.Stdout)
	}
	_, err = p.(frames.Probe).Run(context.Background(), c)
	return true, err
}

// BenchmarkTestpmd is how many frames a second our generator sends by AF_XDP, and DPDK's testpmd (txonly), from the same
// device of a veth pair to the same forwarder, in pairs of random order. The kernel's counter of the device says it. Ours
// looks at each frame that comes back, testpmd at none.
func BenchmarkTestpmd(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2), hosttest.BPF, hosttest.Program("dpdk-testpmd"), hosttest.Program("ip"))
	cpus, self := ends(b)
	network(b)
	itself := []string{"env", "ISOLANE_BENCH=frames", self}
	ours := func() map[string]float64 { return sending(b, cpus, itself, append(itself, "send")) }
	theirs := func() map[string]float64 { return sending(b, cpus, itself, txonly(b, cpus[0])) }
	for b.Loop() {
		comparePairs(b, [2]string{"isolane", "testpmd"}, ours, theirs)
	}
}

// txonly is testpmd without hugepages, whose second thread sends UDP to the forwarder's port.
func txonly(b *testing.B, cpu string) []string {
	b.Helper()
	_, mac := device(b, "isolane-bench-b")
	return []string{"dpdk-testpmd", "--lcores", "(0-1)@(" + cpu + ")", "--no-huge", "--no-shconf", "-m", "128", "--no-pci",
		"--no-telemetry", "--vdev", "net_af_xdp0,iface=eth0", "--", "--forward-mode=txonly", "--auto-start", "--stats-period=3600",
		"--total-num-mbufs=16384", "--burst=32", "--txd=2048", "--txpkts=60", "--eth-peer=0," + mac, // a batch and a ring as ours
		"--tx-ip=" + client + "," + server, "--tx-udp=7008,7009"}
}

// sending starts the forwarder and a sender, and reads the device's counter twice while frames leave.
func sending(b *testing.B, cpus, forwarder, sender []string) map[string]float64 {
	b.Helper()
	start := func(netns, cpu string, argv ...string) (end func()) {
		cmd := exec.Command("ip", append([]string{"netns", "exec", netns, "taskset", "-c", cpu}, argv...)...)
		said := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = said, said
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		return func() {
			err := cmd.Process.Signal(syscall.SIGINT) // testpmd takes its program off the device then
			kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
			werr := cmd.Wait()
			if !kill.Stop() || errors.Is(err, os.ErrProcessDone) {
				b.Fatalf("%v, %v: %s", argv, werr, said)
			}
		}
	}
	defer start("isolane-bench-b", cpus[1], append(forwarder, "serve")...)()
	<-time.After(300 * time.Millisecond) // until it takes frames
	before, _ := device(b, "isolane-bench-a")
	defer start("isolane-bench-a", cpus[0], sender...)()
	for end := time.Now().Add(20 * time.Second); ; <-time.After(20 * time.Millisecond) {
		if sent, _ := device(b, "isolane-bench-a"); sent > before+1000 {
			break
		}
		if time.Now().After(end) {
			b.Fatalf("%v sends nothing", sender)
		}
	}
	<-time.After(200 * time.Millisecond) // its own begin
	from, began := count(b)
	<-time.After(window)
	to, ended := count(b)
	return map[string]float64{"frames/s": float64(to-from) / ended.Sub(began).Seconds()}
}

func count(b *testing.B) (uint64, time.Time) {
	b.Helper()
	sent, _ := device(b, "isolane-bench-a")
	return sent, time.Now()
}

// device is how many frames eth0 of a namespace has sent, and its MAC address.
func device(b *testing.B, netns string) (sent uint64, mac string) {
	b.Helper()
	var all []struct {
		Address string
		Stats64 struct{ TX struct{ Packets uint64 } }
	}
	out, err := exec.Command("ip", "-n", netns, "-s", "-j", "link", "show", "eth0").Output()
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil || len(all) != 1 {
		b.Fatal(fmt.Errorf("%s: eth0: %w: %s", netns, err, out))
	}
	return all[0].Stats64.TX.Packets, all[0].Address
}
