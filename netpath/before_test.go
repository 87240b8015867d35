package netpath_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// besides is what lanes' paths may leave in the kernel besides devices and namespaces: qdiscs and filters of devices
// with names of ours (with the numbers of their programs), eBPF objects, programs on devices by links, nftables.
func besides(t *testing.T) string {
	t.Helper()
	said := func(argv ...string) string { // "" where the kernel or the host has none
		out, _ := exec.CommandContext(context.WithoutCancel(t.Context()), argv[0], argv[1:]...).Output()
		return string(out)
	}
	var all []string
	for line := range strings.Lines(said("tc", "qdisc", "show")) {
		if strings.Contains(line, " dev isl") {
			all = append(all, line)
		}
	}
	devices, err := filepath.Glob("/sys/class/net/isl*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		for _, hook := range []string{"ingress", "egress", "root"} {
			if filters := said("tc", "filter", "show", "dev", filepath.Base(d), hook); filters != "" {
				all = append(all, filepath.Base(d)+" "+hook+" "+filters)
			}
		}
	}
	all = append(all, programs(t, devices)...)
	return strings.Join(append(all, said("nft", "list", "ruleset")), "")
}

// programs are the eBPF objects that a path has and this process has open, and the programs on devices by links. Only a
// process, a pinned name, or a hook keeps one; those of other processes may be others'.
func programs(t *testing.T, devices []string) (all []string) {
	t.Helper()
	open, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range open {
		text, _ := os.ReadFile(file) // it may be closed by now
		for _, kind := range []string{"prog_id:", "map_id:"} {
			_, rest, is := strings.Cut(string(text), "\n"+kind+"\t")
			var id uint32
			if _, serr := fmt.Sscan(rest, &id); is && serr == nil {
				if name := nameOf(kind, id); name != "" {
					all = append(all, fmt.Sprintln(kind, id, name))
				}
			}
		}
	}
	for _, d := range devices {
		l, err := net.InterfaceByName(filepath.Base(d))
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress, ebpf.AttachXDP} {
			if err != nil {
				continue // it has gone meanwhile
			}
			if found, qerr := link.QueryPrograms(link.QueryOptions{Target: l.Index, Attach: at}); qerr == nil && len(found.Programs) > 0 {
				all = append(all, fmt.Sprintln(l.Name, at, found.Programs))
			}
		}
	}
	return all
}

// nameOf is the name of a program or a map; "" if it is none of those that a path has.
func nameOf(kind string, id uint32) (name string) {
	if kind == "prog_id:" {
		if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id)); err == nil {
			defer p.Close()
			if info, ierr := p.Info(); ierr == nil {
				name = info.Name
			}
		}
	} else if m, err := ebpf.NewMapFromID(ebpf.MapID(id)); err == nil {
		defer m.Close()
		if info, ierr := m.Info(); ierr == nil {
			name = info.Name
		}
	}
	if !slices.Contains([]string{"express", "police", "table", "sources", "buckets"}, name) {
		return ""
	}
	return name
}

// settled is what is shown once that is as it was, or after some seconds: the kernel frees programs, and a switch its
// devices, a moment after they say that it is done.
func settled(was string, shown func() string) string {
	now := shown()
	for begun := time.Now(); now != was && time.Since(begun) < 5*time.Second; now = shown() {
		<-time.After(10 * time.Millisecond)
	}
	return now
}
