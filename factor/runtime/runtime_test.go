package runtime

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/runtime/guest"
)

func TestLevels(t *testing.T) {
	f, err := Driver{}.Read([]byte("{kernel: /boot/k, memoryMiB: 256, virtualCPUs: 2, hugepages: 2Mi, " +
		"levels: [host, {name: vm, words: KVM}, container, pod]}"))
	if err != nil {
		t.Fatal(err)
	}
	for level, want := range map[string]guest.Guest{
		"host":      {},
		"pod":       {},
		"container": {Runtime: guest.Container},
		"vm":        {Runtime: guest.VM, Kernel: "/boot/k", Memory: 256, CPUs: 2},
	} {
		var c factor.Conditions
		f.Set(&c, level)
		if diff := cmp.Diff(want, c.Guest); diff != "" || c.Process != (level == "host") || c.Pod != (level == "pod") {
			t.Errorf("%s: process %t, pod %t: %s", level, c.Process, c.Pod, diff)
		}
		if got := c.Lane.Memory.Hugepages["2Mi"]; level == guest.VM && got != 256<<20 || level != guest.VM && got > 0 {
			t.Errorf("%s: a lane with huge pages of %s", level, got)
		}
	}
	for level, program := range map[string]string{"host": "", "container": "crun", "vm": "qemu-system-x86_64"} {
		if got := strings.Join(f.Programs(level), " "); got != program {
			t.Errorf("%s needs %q", level, got)
		}
	}
	if words := f.Levels()[1].Words; words != "KVM" {
		t.Errorf("words: %q", words)
	}
	// What a session stores can be read back, unchanged.
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Driver{}.Read(text)
	if diff := cmp.Diff(f, again, cmp.AllowUnexported(runtimes{})); diff != "" || err != nil {
		t.Errorf("%s: %s %v", text, diff, err)
	}
}

func TestMissing(t *testing.T) {
	for text, missing := range map[string]bool{"{levels: [vm]}": true,
		"{levels: [vm], kernel: /k}": false, "{levels: [vm], kernel: /l}": true} {
		f, err := Driver{}.Read([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		root := fstest.MapFS{"k": &fstest.MapFile{}}
		if what, _ := f.(runtimes).Missing(guest.Container, root); what != "" {
			t.Errorf("%s: a container lacks %s", text, what)
		}
		what, _ := f.(runtimes).Missing(guest.VM, root)
		if missing != (what != "") || strings.Contains(what, "\n") {
			t.Errorf("%s: %q is missing", text, what)
		}
	}
}

func TestBadSettings(t *testing.T) {
	for text, field := range map[string]string{
		"{}":                                "levels",
		"{levels: []}":                      "levels",
		"{levels: [jail]}":                  "levels[0]",
		"{levels: [vm, vm]}":                "levels[1]",
		"{levels: [{name: vm, memory: 1}]}": "levels[0]",
		"{levels: [host, container], kernel: /k}": "kernel",
		"{levels: [host], hugepages: 2Mi}":        "hugepages",
		"{levels: [vm], kernel: boot/k}":          "kernel",
		"{levels: [vm], kernel: /boot/../k}":      "kernel",
		"{levels: [vm], memoryMiB: 127}":          "memoryMiB",
		"{levels: [vm], memoryMiB: 2000000}":      "memoryMiB",
		"{levels: [vm], virtualCPUs: -1}":         "virtualCPUs",
		"{levels: [vm], virtualCPUs: 256}":        "virtualCPUs",
		"{levels: [vm], cpus: 1}":                 "cpus",
		"{levels: [vm], virtualCPUs: two}":        "virtualCPUs",
	} {
		_, err := Driver{}.Read([]byte(text))
		if err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
