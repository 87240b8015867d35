package settings

import (
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// Banned are the CPUs that the configuration of irqbalance has it leave alone, and the line that says so,
// with its file; "" where none does. Of a list that is wrong or empty there are no CPUs.
func (s *Settings) Banned() (cpus cpuset.Set, line string) {
	for _, file := range s.balancerFiles() {
		for text := range strings.Lines(s.Files[file]) {
			text = strings.TrimSpace(text)
			if strings.HasPrefix(text, "#") || strings.HasPrefix(text, ";") {
				continue
			}
			for _, word := range balancerWords(text) {
				key, list, _ := strings.Cut(word, "=")
				parse, ok := map[string]func(string) (cpuset.Set, error){"ISOLANE_CPUS": cpuset.Parse,
					"IRQBALANCE_BANNED_CPULIST": cpuset.Parse, "IRQBALANCE_BANNED_CPUS": cpuset.ParseMask}[key]
				if ok {
					cpus, _ = parse(list)
					line = file + ": " + text
				}
			}
		}
	}
	return cpus, line
}

// balancerFiles set irqbalance's environment, and the last one counts: drop-ins of its service by name, what
// Debian's and Fedora's service read (which counts more than Environment=, systemd.exec(5)), and what lanes
// in force have it start with.
func (s *Settings) balancerFiles() []string {
	const ours = "/run/systemd/system/irqbalance.service.d/50-isolane.conf"
	files := slices.DeleteFunc(s.Optional("/*/systemd/system/irqbalance.service.d/*.conf"),
		func(file string) bool { return file == ours })
	slices.SortStableFunc(files, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	return append(files, "/etc/default/irqbalance", "/etc/sysconfig/irqbalance", ours)
}

// balancerWords are the assignments of a line, without quotes.
func balancerWords(line string) []string {
	line = strings.TrimPrefix(strings.TrimPrefix(line, "export "), "Environment=")
	return strings.Fields(strings.NewReplacer(`"`, "", "'", "").Replace(line))
}

// The services that manage network devices.
const (
	networkd       = "systemd-networkd"
	NetworkManager = "NetworkManager"
)

// ManagedDevice is a network device that a service manages.
type ManagedDevice struct {
	Name, Master string // Master is the bridge that it is a port of; "" for none
	By           string // the service
	File         string // with what systemd-networkd does to it
	KeepsMaster  bool   // it leaves the device in its bridge
}

// ManagedDevices are what systemd-networkd and NetworkManager say of each device, by its number.
func (s *Settings) ManagedDevices() []ManagedDevice {
	names := map[string]string{}
	numbers := s.Optional("/sys/class/net/*/ifindex")
	for _, p := range numbers {
		names[s.Files[p]] = path.Base(path.Dir(p))
	}
	device := func(file, by string) ManagedDevice {
		name := names[path.Base(file)]
		return ManagedDevice{Name: name, By: by, Master: names[s.Files["/sys/class/net/"+name+"/master/ifindex"]]}
	}
	var all []ManagedDevice
	states, devices := s.Optional("/run/systemd/netif/links/*"), s.Optional("/run/NetworkManager/devices/*")
	for _, p := range states {
		state, d := assignments(s.Files[p]), device(p, networkd)
		if d.File = state["NETWORK_FILE"]; d.File != "" && state["ADMIN_STATE"] != "unmanaged" {
			d.KeepsMaster = s.keepsMaster(d.File)
			all = append(all, d)
		}
	}
	for _, p := range devices {
		if assignments(s.Files[p])["managed"] == "true" {
			all = append(all, device(p, NetworkManager))
		}
	}
	if len(numbers) == 0 && len(states)+len(devices) > 0 {
		s.Lacks("/sys/class/net/*/ifindex")
	}
	return all
}

// keepsMaster says whether a file of systemd-networkd, or what is added to it, leaves a device in its bridge.
func (s *Settings) keepsMaster(file string) bool {
	keeps := false
	for _, p := range append([]string{file}, s.Optional("/*/systemd/network/"+path.Base(file)+".d/*.conf")...) {
		if v, is := assignments(s.Files[p])["KeepMaster"]; is {
			keeps = slices.Contains([]string{"1", "yes", "y", "true", "t", "on"}, strings.ToLower(v))
		}
	}
	return keeps
}

// assignments are the lines KEY=VALUE of a file, the last one of a key.
func assignments(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, is := strings.Cut(strings.TrimSpace(line), "="); is {
			all[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return all
}
