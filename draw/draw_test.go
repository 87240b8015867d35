package draw

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/snapshot"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/test/golden"
)

// lanes puts a lane on every third core: whole cores, and single threads with an idle sibling.
func lanes(h host.Host) plan.Placement {
	var p plan.Placement
	for i, core := range h.Cores() {
		switch l := (plan.Lane{Name: fmt.Sprint("vrouter-", i), CPUs: core}); {
		case i%6 == 3:
			l.CPUs, l.Idle = cpuset.Of(core.First()), core.Difference(cpuset.Of(core.First()))
			p.Lanes = append(p.Lanes, l)
		case i%3 == 0 && i > 0:
			p.Lanes = append(p.Lanes, l)
		}
	}
	return p
}

func TestText(t *testing.T) {
	read := func(root fs.FS) host.Host {
		h, err := host.Read(root)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	hybrid := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 2, EfficiencyCores: 8, Isolated: cpuset.MustParse("6-7")}.Host(t)
	for name, c := range map[string]struct {
		h host.Host
		p plan.Placement
	}{
		"cgroup2":   {h: read(hosttest.Snapshot(t, "hwloc/32amd64-4s2n4c-cgroup2.tar.bz2"))},
		"offlines":  {h: read(hosttest.Snapshot(t, "hwloc/16em64t-4s2c2t-offlines.tar.bz2"))},
		"buggynuma": {h: read(hosttest.Snapshot(t, "hwloc/8em64t-2s2ca2c-buggynuma.tar.bz2"))},
		"vector":    {h: read(hosttest.Snapshot(t, "hwloc/32intel64-2p8co2t+8ve.tar.bz2"))},
		"snc":       {h: read(hosttest.Snapshot(t, "nri-plugins/pkg_cpuallocator_testdata_sysfs.tar.bz2:sysfs/2-socket-4-node-40-core"))},
		"lanes":     {h: hybrid, p: lanes(hybrid)},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := Text(&b, c.h, c.p, terminal.Terminal{Columns: 100}); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", name+".txt"), []byte(b.String()))
		})
	}
}

// On every machine, each online CPU is drawn once, as text and as SVG. The text fits its columns, and nothing
// lies outside the picture.
func TestAllMachines(t *testing.T) {
	machines := map[string]host.Host{}
	for _, m := range []hosttest.Machine{
		{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1},
		{Packages: 2, CoresPerPackage: 64, ThreadsPerCore: 2, NodesPerPackage: 4, CoresPerL3: 8, MemoryOnlyNodes: 2},
		{Packages: 1, CoresPerPackage: 8, ThreadsPerCore: 2, EfficiencyCores: 16},
		{Packages: 4, CoresPerPackage: 8, ThreadsPerCore: 2, Offline: cpuset.MustParse("3,17-20"), Allowed: cpuset.MustParse("0-9")},
	} {
		machines[fmt.Sprintf("%+v", m)] = m.Host(t)
	}
	err := filepath.WalkDir(hosttest.Machines(t), func(file string, _ fs.DirEntry, err error) error {
		if root, oerr := snapshot.Open(file, ""); err == nil && oerr == nil {
			if h, rerr := host.Read(root); rerr == nil {
				machines[filepath.Base(file)] = h
			}
		}
		return err
	})
	if err != nil || len(machines) < 12 {
		t.Fatal(err, len(machines))
	}
	for name, h := range machines {
		t.Run(name, func(t *testing.T) {
			for _, p := range []plan.Placement{{}, lanes(h)} {
				for _, on := range []terminal.Terminal{{Columns: 60}, {Columns: 100, Colour: true}, {Columns: 200}} {
					var text strings.Builder
					if err := Text(&text, h, p, on); err != nil {
						t.Fatal(err)
					}
					checkText(t, h, text.String(), on.Columns)
				}
				var picture strings.Builder
				if err := SVG(&picture, h, p); err != nil {
					t.Fatal(err)
				}
				checkSVG(t, h, picture.String())
			}
		})
	}
}

// checkText checks that each CPU appears once, and that each line stays within its columns and its frame.
func checkText(t *testing.T, h host.Host, text string, columns int) {
	t.Helper()
	text = regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(text, "")
	var drawn []int
	frame := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		wide := utf8.RuneCountInString(line)
		if wide > columns {
			t.Errorf("more than %d columns: %s", columns, line)
		}
		switch first, _ := utf8.DecodeRuneInString(line); first {
		case '┌':
			frame = wide
		case '│', '└':
			if wide != frame {
				t.Errorf("the frame of %d columns breaks: %s", frame, line)
			}
		}
	}
	for _, core := range regexp.MustCompile(`\[([^]]+)\]`).FindAllStringSubmatch(text, -1) {
		for _, word := range strings.FieldsFunc(core[1], func(c rune) bool { return c == ' ' || c == '│' || c == '\n' }) {
			number, _, _ := strings.Cut(strings.TrimRight(word, "-i"), ":")
			id, err := strconv.Atoi(number)
			if err != nil {
				t.Error(err)
			}
			drawn = append(drawn, id)
		}
	}
	if len(drawn) != h.Online().Len() || cpuset.Of(drawn...) != h.Online() {
		t.Errorf("drawn %v, online %s\n%s", drawn, h.Online(), text)
	}
}

func checkSVG(t *testing.T, h host.Host, picture string) {
	t.Helper()
	var drawn []int
	var width, height float64
	d := xml.NewDecoder(strings.NewReader(picture))
	for inCPU := false; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			at := map[string]string{}
			for _, a := range e.Attr {
				at[a.Name.Local] = a.Value
			}
			number := func(name string) float64 {
				v, _ := strconv.ParseFloat(at[name], 64)
				return v
			}
			if e.Name.Local == "svg" {
				width, height = number("width"), number("height")
			}
			if right, low := number("x")+number("width"), number("y")+number("height"); right > width || low > height {
				t.Errorf("%s at %g, %g of %g, %g", e.Name.Local, right, low, width, height)
			}
			if size := number("font-size"); e.Name.Local == "text" && size < 9 {
				t.Errorf("text of %g", size)
			}
			inCPU = at["class"] == "cpu"
		case xml.CharData:
			if id, err := strconv.Atoi(string(e)); inCPU && err == nil {
				drawn, inCPU = append(drawn, id), false
			}
		}
	}
	if len(drawn) != h.Online().Len() || cpuset.Of(drawn...) != h.Online() {
		t.Errorf("drawn %v, online %s", drawn, h.Online())
	}
	if width > pictureWidth || height > 5000 {
		t.Errorf("the picture is %g by %g", width, height)
	}
}

// Names of a foreign machine become text and never markup or control characters.
func TestHostileNames(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}.Host(t)
	h.Hostname, h.Kernel.CPUModel = `<script>"&`, "\x1b[2J\xff"
	h.Warnings = []string{"</svg>\x00"}
	p := plan.Placement{Lanes: []plan.Lane{{Name: "<b>", CPUs: cpuset.Of(1)}}}
	var text, picture strings.Builder
	if err := errors.Join(Text(&text, h, p, terminal.Terminal{Columns: 60}), SVG(&picture, h, p)); err != nil {
		t.Fatal(err)
	}
	checkSVG(t, h, picture.String())
	for _, bad := range []string{"\x1b", "\x00", "<script", "<b>", "</svg>\x00"} {
		if strings.Contains(picture.String(), bad) || bad < " " && strings.Contains(text.String(), bad) {
			t.Errorf("found %q", bad)
		}
	}
	if strings.Count(picture.String(), "</svg>") != 1 {
		t.Error("the picture ends twice")
	}
}
