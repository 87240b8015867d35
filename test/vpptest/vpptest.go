// Package vpptest replaces VPP on machines without it: a test's own binary is its vppctl, and a file its
// state.
package vpptest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const name = "vppctl"

// stateEnv names the file with the state. It does not exist if VPP does not run.
const stateEnv = "ISOLANE_TEST_VPP"

// VPP is the state of a VPP: its interfaces by name, and its bridge domains by number.
type VPP struct {
	Version string
	Threads string // its answer to show threads
	Faces   map[string]*Face
	Domains map[string]bool
}

// Face is an interface.
type Face struct {
	Up               bool
	Bridge, Pop, Tag string
}

// Be makes the process vppctl if it was started under that name. It is for hosttest.Main.
func Be() (ran bool, err error) {
	if filepath.Base(os.Args[0]) != name {
		return false, nil
	}
	v, err := Read()
	if err != nil {
		return true, errors.New("connect: Connection refused") // as vppctl words it
	}
	if _, err = fmt.Fprintln(os.Stdout, v.answer(strings.Join(os.Args[1:], " "))); err == nil {
		err = v.write()
	}
	return true, err
}

// Install installs a vppctl of a VPP that does not run yet, until the test ends.
func Install(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(stateEnv, filepath.Join(dir, "state"))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// Read returns the running VPP.
func Read() (v VPP, err error) {
	data, err := os.ReadFile(os.Getenv(stateEnv))
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	return v, err
}

// String returns its state, as it is stored.
func (v VPP) String() string {
	data, _ := json.Marshal(v) // plain data
	return string(data)
}

// Run starts this VPP, in place of another one.
func (v VPP) Run(t *testing.T) {
	t.Helper()
	if err := v.write(); err != nil {
		t.Fatal(err)
	}
}

// End ends the running VPP.
func End(t *testing.T) {
	t.Helper()
	if err := os.Remove(os.Getenv(stateEnv)); err != nil {
		t.Fatal(err)
	}
}

// write writes the file as a whole or not at all, because its caller may be killed.
func (v VPP) write() error {
	file := os.Getenv(stateEnv)
	next := fmt.Sprint(file, ".", os.Getpid())
	err := os.WriteFile(next, []byte(v.String()), 0o600)
	if err == nil {
		err = os.Rename(next, file)
	}
	return err
}

// commands maps patterns of questions to what VPP does.
type commands map[string]func(of []string) (says string)

// answer returns what VPP 26.10 prints, in the grammar of its sources (vnet/interface_cli.c, vnet/l2/l2_bd.c,
// l2_input.c and l2_vtr.c, plugins/af_packet/cli.c).
func (v VPP) answer(command string) string {
	for _, all := range []commands{v.shows(), v.domains(), v.interfaces()} {
		for pattern, do := range all {
			if m := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(command); m != nil {
				return do(m)
			}
		}
	}
	return "unknown input `" + command + "'"
}

func (v VPP) shows() commands {
	return commands{
		`show version`: func([]string) string { return "vpp v" + v.Version + " built by root on a at b" },
		`show threads`: func([]string) string { return v.Threads },
		`show interface address`: func([]string) (out string) {
			for _, name := range slices.Sorted(maps.Keys(v.Faces)) {
				f := v.Faces[name]
				out += fmt.Sprintf("%s (%s):\n", name, map[bool]string{true: "up", false: "dn"}[f.Up])
				if f.Bridge != "" {
					out += fmt.Sprintf("  L2 bridge bd-id %s idx 1 shg 0  \n", f.Bridge)
				}
			}
			return out
		},
		`show interface tag (\S+)`: func(m []string) string {
			return m[1] + ": " + cmp.Or(v.Faces[m[1]].Tag, "(none)")
		},
		`show interface vtr (\S+)`: func(m []string) string { return m[1] + ":  VTR " + v.Faces[m[1]].Pop },
		`show bridge-domain (\d+)`: func(m []string) string {
			if !v.Domains[m[1]] {
				return "show bridge-domain: No such bridge domain " + m[1]
			}
			return "  BD-ID   Index   BSN\n" + "    " + m[1] + "      1      0"
		},
	}
}

func (v VPP) domains() commands {
	return commands{
		`create bridge-domain (\d+) del`: func(m []string) string {
			for _, f := range v.Faces {
				if f.Bridge == m[1] {
					return "create bridge-domain: bridge domain in use - remove members"
				}
			}
			if !v.Domains[m[1]] {
				return "create bridge-domain: bridge domain ID does not exist"
			}
			delete(v.Domains, m[1])
			return ""
		},
		`set interface l2 bridge (\S+) (\d+)`: func(m []string) string {
			v.Faces[m[1]].Bridge, v.Domains[m[2]] = m[2], true
			return ""
		},
		`set interface l3 (\S+)`: func(m []string) string { v.Faces[m[1]].Bridge = ""; return "" },
	}
}

func (v VPP) interfaces() commands {
	return commands{
		`create sub-interfaces (\S+) (\d+) (?:default|(?:dot1ad \d+ inner-)?dot1q \d+ exact-match)`: func(
			m []string,
		) string {
			name := m[1] + "." + m[2]
			v.Faces[name] = &Face{Pop: "none"}
			return name
		},
		`create host-interface v2 name (\S+)`: func(m []string) string {
			v.Faces["host-"+m[1]] = &Face{Pop: "none"}
			return "host-" + m[1]
		},
		`delete (?:sub-interface (\S+)|host-interface name (\S+))`: func(m []string) string {
			delete(v.Faces, m[1])
			delete(v.Faces, "host-"+m[2])
			return ""
		},
		`set interface state (\S+) (up|down)`: func(m []string) string {
			v.Faces[m[1]].Up = m[2] == "up"
			return ""
		},
		`set interface tag (\S+) (\S+)`: func(m []string) string { v.Faces[m[1]].Tag = m[2]; return "" },
		`set interface l2 tag-rewrite (\S+) pop (1|2)`: func(m []string) string {
			v.Faces[m[1]].Pop = "pop-" + m[2]
			return ""
		},
	}
}
