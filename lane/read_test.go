package lane

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	sigs "sigs.k8s.io/yaml"
)

// Each error is one line that says where and what, in the user's words.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"count: 2", "count: 0", "5: spec.cpus.count: expected 1-8192, found 0"},
		{"{count: 2, smt: isolate, kind: performance}", "1", "5: spec.cpus: expected {count: N}, found 1"},
		{"{count: 2, smt: isolate, kind: performance}", "[1, 2]", "5: spec.cpus: expected {count: N}, found a list"},
		{"count: 2, ", "", "5: spec.cpus.count: missing: expected 1-8192"},
		{"{count: 2, smt: isolate, kind: performance}", "", "5: spec.cpus.count: missing: expected 1-8192"},
		{"count: 2", "cuont: 2", "5: spec.cpus.cuont: unknown field, did you mean count?"},
		{"count: 2", "Count: 2", "5: spec.cpus.Count: unknown field, did you mean count?"},
		{"count: 2", "cores: 2", "5: spec.cpus.cores: unknown field: expected count, smt, kind, l3, numa, list, share, boot or balance"},
		{"count: 2", "numaNode: 2", "5: spec.cpus.numaNode: unknown field, did you mean spec.near.numaNode?"},
		{"count: 2", `count: "2"`, `5: spec.cpus.count: expected a whole number such as 4 without quotes, found "2"`},
		{"count: 2", "count: 2.5", "5: spec.cpus.count: expected a whole number such as 4, found 2.5"},
		{"count: 2", "count: 010", "5: spec.cpus.count: expected a whole number such as 4, found 010"},
		{"count: 2", "count: 99999999999999999999", "5: spec.cpus.count: expected a whole number such as 4, found 99999999999999999999"},
		{"count: 2", "count: two", `5: spec.cpus.count: expected a whole number such as 4, found "two"`},
		{"count: 2", "count: {a: 1}", "5: spec.cpus.count: expected a whole number such as 4, found {a: …}"},
		{"count: 2", "count: 2, boot: yes", `5: spec.cpus.boot: expected true or false, found "yes"`},
		{"count: 2", "count: 2, count: 3", "5: spec.cpus.count: is given a second time, first in line 5"},
		{"smt: isolate", "smt: yes", `5: spec.cpus.smt: yes without quotes is true or false to many readers of YAML: write "yes"`},
		{"smt: isolate", "smt: isolated", `5: spec.cpus.smt: expected isolate, pack or any, found "isolated"`},
		{"near: {device: ens1f0}", "near: {device: ens1f0, numaNode: 1}", "8: spec.near: expected one of device, numaNode and lane, found 2"},
		{"near: {device: ens1f0}", "near: {numaNode: -1}", "8: spec.near.numaNode: expected 0-1023, found -1"},
		{"near: {device: ens1f0}", "near: {device: " + strings.Repeat("e", 5000) + "}",
			`8: spec.near.device: expected a network device or a PCI address, found "` + strings.Repeat("e", 40) + `…"`},
		{"near: {device: ens1f0}", "cgroup: {path: ../web}",
			`8: spec.cgroup.path: expected a cgroup such as system.slice/web.service, found "../web"`},
		{"near: {device: ens1f0}", "cgroup: {partition: root}", `8: spec.cgroup.partition: expected member, found "root"`},
		{"near: {device: ens1f0}", "near: {lane: Other Lane}", `8: spec.near.lane: expected the name of a lane, found "Other Lane"`},
		{"near: {device: ens1f0}", "apart:\n    lanes:\n    - a\n    - ../b", `11: spec.apart.lanes[1]: expected the name of a lane, found "../b"`},
		{"worker: 1", "worker: 2", "9: spec.roles: expected at most 2 CPUs in all, spec.cpus.count, found 3"},
		{"worker: 1", "worker: 0", "9: spec.roles.worker: expected 1-8192, found 0"},
		{"worker: 1", "y: 1", `9: spec.roles.y: y without quotes is true or false to many readers of YAML: write "y"`},
		{"size: 1Gi", "size: 64MiB", `6: spec.memory.size: expected 64Mi, found "64MiB"`},
		{"size: 1Gi", "size: 1 GiB", `6: spec.memory.size: expected 1Gi, found "1 GiB"`},
		{"size: 1Gi", "size: true", "6: spec.memory.size: expected a size such as 512Mi, found true"},
		{"size: 1Gi, hugepages: {2Mi: 512Mi}", "hugepages: 512Mi", `6: spec.memory.hugepages: expected {2Mi: SIZE}, found "512Mi"`},
		{"512Mi", "511Ki", "6: spec.memory.hugepages.2Mi: expected a multiple of the page, 2Mi, found 511Ki"},
		{"{2Mi: 512Mi}", "{2Mi: 512Mi, 2048Ki: 2Mi}", "6: spec.memory.hugepages.2Mi: expected each size once: 2048Ki is the same"},
		{"2Mi: 512Mi", "2M: 512Mi", `6: spec.memory.hugepages.2M: expected the size of a page, such as 2Mi or 1Gi, found "2M"`},
		{"2Mi: 512Mi", "huge: 512Mi", `6: spec.memory.hugepages.huge: expected the size of a page, such as 2Mi or 1Gi, found "huge"`},
		{"worker: 1", "~: 1", "9: spec.roles: expected a name, found ~: write it in quotes"},
		{"worker: 1", `"work\ner": 1`, `9: spec.roles.work\ner: expected 1-32 letters, digits, '-' and '_', found "work\ner"`},
		{"100us", "0s", "11: spec.objective.rtt.p99: expected more than 0, found 0"},
		{"priority: 50", "priority: 99", "10: spec.scheduling.priority: expected 1-98, found 99"},
		{", priority: 50", "", "10: spec.scheduling.priority: missing: policy fifo needs one, 1-98"},
		{"p99.9:", "p100:", `11: spec.objective.rtt.p100: expected a percentile such as p99.9, or max, found "p100"`},
		{"1Gbit/s", "1Gbps", `11: spec.objective.throughput.min: expected 1Gbit/s, found "1Gbps"`},
		{"100us", "fast", `11: spec.objective.rtt.p99: expected a number and ns, us, ms, s, m or h, found "fast"`},
		{"vrouter-17", "../etc", `3: metadata.name: expected 1-63 of a-z, 0-9, '-' and '.', first and last a letter or digit, found "../etc"`},
		{"vrouter-17", "-x", `3: metadata.name: expected 1-63 of a-z, 0-9, '-' and '.', first and last a letter or digit, found "-x"`},
		{"vrouter-17", strings.Repeat("x", 5000), `3: metadata.name: expected 1-63 of a-z, 0-9, '-' and '.', first and last a letter or digit, found "` + strings.Repeat("x", 40) + `…"`},
		{"vrouter-17", "no", `3: metadata.name: no without quotes is true or false to many readers of YAML: write "no"`},
		{"vrouter-17", "17", "3: metadata.name: expected a name, found 17: write it in quotes"},
		{"vrouter-17", "true", "3: metadata.name: expected a name, found true: write it in quotes"},
		{"name: vrouter-17", "", "3: metadata.name: missing: expected NAME"},
		{"vrouter-17", "housekeeping", "3: metadata.name: expected another name"},
		{"kind: Lane", "kind: Pod", `2: kind: expected Lane, found "Pod"`},
		{"kind: Lane\n", "", "1: kind: missing: expected Lane"},
		{"isolane.dev/v1alpha1", "isolane.dev/v1", `1: apiVersion: expected isolane.dev/v1alpha1, found "isolane.dev/v1"`},
		{"outer: 100", "outer: 4095", "7: spec.network.vlan.outer: expected 1-4094, found 4095"},
		{"vlan: {outer: 100, inner: 17}", "sources: [10.0.0.1/8]", "7: spec.network.sources[0]: expected the first address of a range and the length of its prefix, such as 10.0.0.0/8"},
		{"vlan: {outer: 100, inner: 17}", "rate: 0", `7: spec.network.rate: expected a rate above 0, found "0"`},
		{"vlan: {outer: 100, inner: 17}", "rate: 0Gbit", `7: spec.network.rate: expected a rate above 0, found "0Gbit"`},
		{"vlan: {outer: 100, inner: 17}", "rate: 100kbit", "7: spec.network.rate: 100kbit/s: expected at least 1Mbit/s"},
		{"vlan: {outer: 100, inner: 17}", "addresses: [192.0.2.10]", "7: spec.network.addresses[0]: expected an address and the length of its prefix, such as 192.0.2.10/24 or 2001:db8::10/64, found \"192.0.2.10\""},
		{"vlan: {outer: 100, inner: 17}", "addresses: [192.0.2.0/24]", "7: spec.network.addresses: 192.0.2.0/24: expected an address of one host, this is the network"},
		{"vlan: {outer: 100, inner: 17}", "addresses: [192.0.2.255/24]", "7: spec.network.addresses: 192.0.2.255/24: expected an address of one host, this is the network"},
		{"vlan: {outer: 100, inner: 17}", "addresses: [224.0.0.1/4]", "7: spec.network.addresses: 224.0.0.1/4: expected an address of one host"},
		{"vlan: {outer: 100, inner: 17}", "addresses: [\"::ffff:192.0.2.1/120\"]", "7: spec.network.addresses: ::ffff:192.0.2.1/120: expected an address of one host"},
		{"vlan: {outer: 100, inner: 17}", "addresses: [192.0.2.1/24, 192.0.2.1/25]", "7: spec.network.addresses: 192.0.2.1 is given a second time"},
		{"vlan: {outer: 100, inner: 17}", "addresses: [\"2001:db8::1/64\"], mtu: 1000", "7: spec.network.mtu: expected at least 1280, which IPv6 needs, found 1000"},
		{"vlan: {outer: 100, inner: 17}", "addresses: [192.0.2.1/24], gateways: [198.51.100.1]", "7: spec.network.gateways: 198.51.100.1: expected an address in a prefix of spec.network.addresses"},
		{"vlan: {outer: 100, inner: 17}", "addresses: [192.0.2.1/24], gateways: [192.0.2.1]", "7: spec.network.gateways: 192.0.2.1 is the lane's own address"},
		{"vlan: {outer: 100, inner: 17}", "addresses: [192.0.2.1/24], gateways: [192.0.2.2, 192.0.2.3]", "7: spec.network.gateways: 192.0.2.3: expected at most one for IPv4 and one for IPv6"},
		{"vlan: {outer: 100, inner: 17}", "gateways: [here]", "7: spec.network.gateways[0]: expected an address, such as 192.0.2.1 or 2001:db8::1, found \"here\""},
		{"vlan: {outer: 100, inner: 17}", "mtu: 67", "7: spec.network.mtu: expected 68-65535, found 67"},
		{"vlan: {outer: 100, inner: 17}", "mtu: 0", "7: spec.network.mtu: expected 68-65535, found 0"},
		{"vlan: {outer: 100, inner: 17}", "vlan: {outer: 0}", "7: spec.network.vlan.outer: expected 1-4094, found 0"},
		{"vlan: {outer: 100, inner: 17}", "queues: 0", "7: spec.network.queues: expected 1-1024, found 0"},
		{"path: express, device: ens1f0, vlan: {outer: 100, inner: 17}", "mtu: 1500", "7: spec.network.mtu: expected spec.network.path too"},
		{"path: express, device: ens1f0, vlan: {outer: 100, inner: 17}", "takeFromHost: true", "7: spec.network.takeFromHost: expected spec.network.path too"},
		{"device: ens1f0, vlan: {outer: 100, inner: 17}", "takeFromHost: true", "7: spec.network.takeFromHost: expected spec.network.device too"},
		{"metadata: {", "metadata: &m {<<: *m, ", "3: metadata: <<: expected the fields themselves"},
		{"spec:\n", "spec:\n\tcpus: 1\n", "5: expected YAML, which indents by spaces only: found a tab"},
		{"spec:\n", "spec:\n  memory:\n  \tsize: 1Gi\n", "6: expected YAML, which indents by spaces only: found a tab"},
	} {
		in := strings.Replace(full, c.old, c.new, 1)
		_, err := Parse("lanes.yaml", strings.NewReader(in))
		if err == nil || !strings.HasPrefix(err.Error(), "lanes.yaml:"+c.want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
			t.Errorf("%s instead of %s: %v; want one line with %q", c.new, c.old, err, c.want)
		}
	}
}

func TestParseWhatIsNoLane(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "f: expected at least one document of kind Lane, found none",
		"\n---\n# nothing\n---\n":  "f: expected at least one document of kind Lane, found none",
		"lanes: [{name: a}]\n":     "f:1: expected a document with apiVersion: isolane.dev/v1alpha1 and kind: Lane, found the fields lanes",
		"# a\n- a\n":               "f:2: expected a document of kind Lane, found a list",
		"hello\n":                  `f:1: expected a document of kind Lane, found "hello"`,
		"{\n":                      "f:1: expected YAML: did not find expected node content",
		"a: *b\n":                  "f:1: expected YAML: unknown anchor 'b' referenced",
		"a: b: c\n":                "f:1: expected YAML: mapping values are not allowed in this context",
		"# a\n\nb: *c\n":           "f:3: expected YAML: unknown anchor 'c' referenced",
		"# a\nb: \x01\n":           "f:2: expected YAML: found the character U+0001",
		"# a\nb: \xff\n":           "f:2: expected YAML: found what is no UTF-8",
		full + "...\n" + full:      "f:12: expected YAML: did not find expected <document start>",
		strings.Repeat("[", 20000): "f:1: expected YAML: exceeded max depth of 10000",
		full + strings.Repeat("#", 1e6) + strings.Repeat(" ", 1e5): "f: expected at most 1 MiB",
	} {
		if _, err := Parse("f", strings.NewReader(in)); err == nil || err.Error() != want {
			t.Errorf("%.60q: %v; want %s", in, err, want)
		}
	}
}

// No document of a stream is dropped, however it is set apart.
func TestParseStreams(t *testing.T) {
	second := strings.ReplaceAll(full, "vrouter-17", "vrouter-18")
	flow := `{"apiVersion": "isolane.dev/v1alpha1", "kind": "Lane", "metadata": {"name": "vrouter-18"}, "spec": {"cpus": {"count": 1}}}`
	for name, in := range map[string]string{
		"plain":            full + "---\n" + second,
		"comment":          full + "--- # the second\n" + second,
		"trailing blanks":  full + "--- \t\n" + second,
		"CRLF":             strings.ReplaceAll(full+"---\n"+second, "\n", "\r\n"),
		"flow":             full + "--- " + flow + "\n",
		"end mark":         full + "...\n---\n" + second,
		"directive":        full + "...\n%YAML 1.1\n---\n" + second,
		"empty in between": "---\n---\n" + full + "---\n# nothing\n---\n" + second + "---\n",
		"byte order mark":  "\ufeff" + full + "---\n" + second,
		"anchor":           full + "---\n" + strings.Replace(strings.Replace(second, "name: vrouter-18", "name: &n vrouter-18", 1), "main: 1", "main: &one 1", 1),
	} {
		lanes, err := Parse("f", strings.NewReader(in))
		if err != nil || len(lanes) != 2 || lanes[1].Metadata.Name != "vrouter-18" {
			t.Errorf("%s: %d lanes, %v", name, len(lanes), err)
		}
	}
	_, err := Parse("f", strings.NewReader(full+"--- # again\n"+full))
	if want := `f:15: metadata.name: "vrouter-17" is the name of the lane at f:3 already`; err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

func TestReadAll(t *testing.T) {
	dir := t.TempDir()
	write := func(name, lane string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(full, "vrouter-17", lane)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("lanes/b.yml", "b")
	write("lanes/a.yaml", "a")
	write("lanes/.hidden.yaml", "hidden")
	write("lanes/notes.txt", "notes")
	write("lanes/more.yaml/c.yaml", "c")
	write("empty/notes.txt", "notes")
	again := write("again.yaml", "a")
	lanes := filepath.Join(dir, "lanes")
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{lanes}, "a b"},
		{[]string{"-", lanes}, "vrouter-17 a b"},
		{[]string{again, filepath.Join(lanes, "b.yml")}, "a b"},
		{[]string{lanes, again}, again + `:3: metadata.name: "a" is the name of the lane at ` + lanes + "/a.yaml:3 already"},
		{[]string{"-", again, "-"}, "-: standard input can be read once only"},
		{[]string{filepath.Join(dir, "empty")}, dir + "/empty: expected files *.yaml or *.yml with lanes in this directory"},
		{[]string{filepath.Join(dir, "none")}, dir + "/none: no such file or directory"},
	} {
		var got []string
		read, err := ReadAll(c.names, strings.NewReader(full))
		for _, l := range read {
			got = append(got, l.Metadata.Name)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %v; want %s", c.names, got, c.want)
		}
	}
}

// What passes is valid, and is all that stands there; what does not is answered by one line in the user's
// words.
func FuzzParse(f *testing.F) {
	f.Add(full)
	f.Add("---\n---\n")
	f.Add(strings.Repeat("[", 100) + strings.Repeat("{a: ", 100))
	f.Add("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nspec: *c\n")
	f.Fuzz(func(t *testing.T, in string) {
		lanes, err := Parse("f", strings.NewReader(in))
		if err != nil {
			text := err.Error()
			if strings.ContainsAny(text, "\n\r") || len(text) > 800 || !strings.HasPrefix(text, "f:") || strings.Contains(text, "unmarshal") {
				t.Errorf("%q: %s", in, text)
			}
			return
		}
		if documents := countDocuments(in); documents != len(lanes) {
			t.Errorf("%q: %d lanes of %d documents", in, len(lanes), documents)
		}
		var other Lane // as a reader reads it that goes by JSON and knows no lines
		if sigs.UnmarshalStrict([]byte(in), &other) == nil && len(lanes) == 1 {
			other.At = lanes[0].At
		}
		if other.At != "" && !reflect.DeepEqual(lanes[0], other) {
			t.Errorf("%q: %+v; expected %+v", in, lanes[0], other)
		}
		for _, l := range lanes {
			if err := l.Validate(); err != nil {
				t.Errorf("%q passed: %v", in, err)
			}
		}
	})
}

// countDocuments counts the documents of a stream by its events alone: those that hold anything.
func countDocuments(in string) int {
	n := 0
	for d := yaml.NewDecoder(strings.NewReader(in)); ; {
		var any any
		if d.Decode(&any) != nil {
			return n
		}
		if any != nil {
			n++
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"count", "smt", "numa", "l3"}
	for in, want := range map[string]string{"cuont": "count", "cont": "count", "smt2": "smt", "l2": "l3", "xyz": "", "": "", "NUMA": "numa"} {
		if got := nearest(in, words); got != want {
			t.Errorf("%q: %q; want %q", in, got, want)
		}
	}
	if slices.Contains(words, nearest(strings.Repeat("count", 1000), words)) {
		t.Error("a long word resembles a short one")
	}
}
