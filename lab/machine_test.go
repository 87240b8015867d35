package lab

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// QEMU's options, one a line.
func TestArgs(t *testing.T) {
	f := files{kernel: "KERNEL", initrd: "INITRD", root: "ROOT", nvme: "NVME", control: "CONTROL", console: "CONSOLE", runner: "RUNNER", share: "a,share"}
	small := Machine{Sockets: 1, Cores: 2, Threads: 2, Kernel: "rt", Init: "systemd", Cmdline: "isolcpus=1", Nodes: []Node{
		{MemoryMiB: 512, Distances: []int{10, 30}}, {MemoryMiB: 256, Distances: []int{30, 10}, NICs: 2, Cards: "virtio-net", NVMes: 1}}}
	wired := f
	wired.wire = Wire{Socket: "WIRE", End: 1}
	tapped := f
	tapped.wire = Wire{Tap: "a,tap"}
	for _, c := range []struct {
		name string
		m    Machine
		f    files
	}{{"default", Default(), f}, {"small-wired", small, wired}, {"small-tapped", small, tapped}} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.m.Validate(); err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(strings.Join(c.m.args(c.f), "\n"), "\n-", "\x00-")
			got = strings.ReplaceAll(strings.ReplaceAll(got, "\n", " "), "\x00", "\n") + "\n"
			golden := filepath.Join("testdata", c.name+".want.args")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.yaml")
	for text, want := range map[string]string{
		"kernel: rt":                       "",
		"kernl: rt":                        "unknown field",
		"kernel: bsd":                      "kernel: \"bsd\": expected one of generic, rt, bookworm, bullseye",
		"sockets: 0":                       "expected at least 1 each",
		"threads: 3\ncores: 1":             "",
		"sockets: 3\ncores: 1":             "",
		"sockets: 1\ncores: 1\nthreads: 1": "nodes: expected 1 to 8 that divide the 1 CPUs evenly",
		"cmdline: \"a\\nb\"":               "cmdline: expected one line",
		"nodes: [{memoryMiB: 1024, distances: [20]}]":               "nodes[0].distances: expected 1 numbers, 10 for the node itself",
		"nodes: [{memoryMiB: 64, distances: [10]}]":                 "nodes[0].memoryMiB: 64: expected 256 to 16384",
		"nodes: [{memoryMiB: 256, distances: [10], nics: 9}]":       "nodes[0]: expected at most 4 nics and 4 nvmes",
		"nodes: [{memoryMiB: 256, distances: [10], cards: e1000e}]": "",
		"nodes: [{memoryMiB: 256, distances: [10], cards: e1000}]":  "nodes[0].cards: \"e1000\": expected one of igb, e1000e, virtio-net",
		"init: systemd": "",
		"init: openrc":  "init: \"openrc\": expected script or systemd",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadMachine(file)
		if (want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), file)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestKernelOf(t *testing.T) {
	for text, want := range map[string]string{
		"trixie linux-image-6.12.107+deb13-amd64 6.12.107-1\n":    "generic 6.12.107+deb13-amd64",
		"trixie linux-image-6.12.107+deb13-rt-amd64 6.12.107-1\n": "rt 6.12.107+deb13-rt-amd64",
		"bullseye linux-image-5.10.0-32-amd64 5.10.223-1\n":       "bullseye 5.10.0-32-amd64",
		"bullseye linux-image-amd64 5.10.223-1\n":                 "",
		"trixie kmod 34\n": "",
	} {
		from, line, _ := strings.Cut(text, " ")
		name, kernel, ok := kernelOf(from, line)
		if got := strings.TrimSpace(name + " " + kernel.name); got != want || ok != (want != "") || ok && kernel.suite != from {
			t.Errorf("%s: %q of %q, want %q", text, got, kernel.suite, want)
		}
	}
}

// A kernel is found behind its wrapper's code, by either program.
func TestUnwrap(t *testing.T) {
	kernel := "\x7fELF and the rest"
	for _, program := range []string{"zstd", "xz"} {
		t.Run(program, func(t *testing.T) {
			if _, err := exec.LookPath(program); err != nil {
				t.Skip("skipped:", err)
			}
			cmd := exec.CommandContext(t.Context(), program, "-c")
			cmd.Stdin = strings.NewReader(kernel)
			packed, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			image := "MZ\x28\xb5\x2f\xfd\xfd7zXZ\x00 not a stream" + string(packed) + "and a table"
			if got, err := unwrap(t.Context(), []byte(image)); err != nil || string(got) != kernel {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	if _, err := unwrap(t.Context(), []byte("MZ\x28\xb5\x2f\xfd not a stream")); err == nil || !strings.Contains(err.Error(), "found no kernel") {
		t.Errorf("got %v", err)
	}
}
