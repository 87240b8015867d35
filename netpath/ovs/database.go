package ovs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/journal"
)

// database is what a step can read or change of Open vSwitch.
type database struct {
	bridges map[string]*bridgeRow
	config  map[string]string // other_config
	dpdk    bool              // ovs-vswitchd has started with DPDK
	cards   map[string]card   // by PCI address
}

type bridgeRow struct {
	datapath string // "netdev" is the user-space data path, "system" or "" the kernel's
	opened   bool   // Open vSwitch has a data path for it
	mark     string // "": not Isolane's
	ports    map[string]*portRow
}

type portRow struct {
	mark   string
	flows  string // the digest of its flows, as makeFlows records it
	mode   string
	tag    int    // -1: none
	number int    // of OpenFlow; below 1 if it has none yet
	failed string // why Open vSwitch cannot open it
	mtu    int    // of a network device that is not a bridge's own, else 0
	kind   string // type of the interface; "" is a network device
	socket string // of a vhost-user port
	wanted int    // the MTU asked for; -1: none
}

// mtu returns the smallest MTU of a bridge's ports that are not Isolane's; 0 if there are none. The bridge's
// own device follows all its ports.
func (b bridgeRow) mtu() (least int) {
	for _, p := range b.ports {
		if p.mark == "" && p.mtu > 0 && (least == 0 || p.mtu < least) {
			least = p.mtu
		}
	}
	return least
}

// port finds a port, and the bridge that has it; "" and nil if there is none.
func (db database) port(name string) (bridge string, p *portRow) {
	for at, b := range db.bridges {
		if p = b.ports[name]; p != nil {
			return at, p
		}
	}
	return "", nil
}

// base returns the bridge that a device is, or that it is a port of.
func (db database) base(device string, dpdk bool) string {
	if db.bridges[device] != nil {
		return device
	}
	return own(device, dpdk)
}

// leftovers returns the commands that remove what Isolane made in an earlier boot: the database survives a
// reboot, the journal does not.
func (db database) leftovers() (commands [][]string) {
	for name, b := range db.bridges {
		for p, row := range b.ports {
			if leftover(row.mark) {
				commands = append(commands, []string{"--if-exists", "del-port", p})
			}
		}
		if leftover(b.mark) {
			commands = append(commands, []string{"--if-exists", "del-br", name})
		}
	}
	slices.SortFunc(commands, func(a, b []string) int { return -strings.Compare(a[1], b[1]) }) // ports first
	return commands
}

// RemoveLeftovers removes what Isolane made in an earlier boot. Both paths use the same database.
func (p Path) RemoveLeftovers(ctx context.Context) (removed []string, err error) {
	if p.DPDK {
		return nil, nil
	}
	db, err := read(ctx)
	if err == nil {
		_, _, err = version(ctx)
	}
	if errors.As(err, new(*journal.UnansweredError)) {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	commands := db.leftovers()
	if err = change(ctx, commands); err != nil {
		return nil, err
	}
	for _, c := range commands {
		kind := strings.NewReplacer("del-br", "bridge", "del-port", "port").Replace(c[1])
		removed = append(removed, "Open vSwitch "+kind+" "+c[2]+", of lanes before the last boot")
	}
	return removed, nil
}

// read asks the database.
func read(ctx context.Context) (database, error) {
	db := database{bridges: map[string]*bridgeRow{}, cards: map[string]card{}}
	tables, err := list(ctx, []string{"Bridge", "name", "datapath_type", "datapath_id", "external_ids", "ports"},
		[]string{"Port", "_uuid", "name", "tag", "vlan_mode", "external_ids"},
		[]string{"Interface", "name", "type", "ofport", "error", "mtu", "mtu_request", "options", "other_config"},
		[]string{"Open_vSwitch", "other_config", "dpdk_initialized"})
	if err != nil {
		return db, err
	}
	interfaces, ports := map[string]row{}, map[string]*portRow{}
	for _, r := range tables[2] {
		interfaces[text(r["name"])] = r
		options := pairs(r["options"])
		if address, _, _ := strings.Cut(options["dpdk-devargs"], ","); address != "" {
			db.cards[address] = card{text(r["name"]), options["n_rxq"], pairs(r["other_config"])["pmd-rxq-affinity"]}
		}
	}
	names := map[string]string{} // of ports, by UUID
	for _, r := range tables[1] {
		name, ids := text(r["name"]), pairs(r["external_ids"])
		i := interfaces[name] // a bond has none
		names[text(r["_uuid"])] = name
		ports[name] = &portRow{mark: ids[markKey], flows: ids[flowsKey], mode: text(r["vlan_mode"]),
			tag: number(r["tag"]), number: number(i["ofport"]), failed: text(i["error"]), kind: text(i["type"]),
			socket: pairs(i["options"])[socketKey], wanted: number(i["mtu_request"])}
		if kind := ports[name].kind; kind == "" || kind == "dpdk" {
			ports[name].mtu = number(i["mtu"])
		}
	}
	for _, r := range tables[0] {
		b := &bridgeRow{text(r["datapath_type"]), text(r["datapath_id"]) != "", pairs(r["external_ids"])[markKey],
			map[string]*portRow{}}
		for _, id := range set(r["ports"]) {
			b.ports[names[id]] = ports[names[id]]
		}
		db.bridges[text(r["name"])] = b
	}
	for _, r := range tables[3] {
		db.config = pairs(r["other_config"])
		db.dpdk = r["dpdk_initialized"] == true
	}
	return db, nil
}

// row is a row of a table, by column, in the form of RFC 7047, section 5.1.
type row map[string]any

// list reads columns of tables. Each table is given as its name and the names of its columns.
func list(ctx context.Context, tables ...[]string) (all [][]row, err error) {
	args := []string{"--format=json"}
	for _, t := range tables {
		args = append(args, "--", "--columns="+strings.Join(t[1:], ","), "list", t[0])
	}
	out, err := tool(ctx, vsctl, "", args...)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(out))
	for range tables {
		var table struct {
			Headings []string
			Data     [][]any
		}
		if err = decoder.Decode(&table); err != nil {
			return nil, fmt.Errorf("%s %s: %w", vsctl, strings.Join(args, " "), err)
		}
		rows := []row{}
		for _, data := range table.Data {
			r := row{}
			for i, name := range table.Headings[:min(len(data), len(table.Headings))] {
				r[name] = data[i]
			}
			rows = append(rows, r)
		}
		all = append(all, rows)
	}
	return all, nil
}

// set returns the elements of a value. A single one is written without ["set", ...].
func set(v any) (all []string) {
	pair, _ := v.([]any)
	if len(pair) != 2 || pair[0] != "set" {
		return []string{text(v)}
	}
	elements, _ := pair[1].([]any)
	for _, e := range elements {
		all = append(all, text(e))
	}
	return all
}

// text returns a string or a UUID; "" if there is none.
func text(v any) string {
	if pair, ok := v.([]any); ok && len(pair) == 2 && pair[0] == "uuid" {
		v = pair[1]
	}
	s, _ := v.(string)
	return s
}

// number returns a number; -1 if there is none.
func number(v any) int {
	if f, ok := v.(float64); ok {
		return int(f)
	}
	return -1
}

func pairs(v any) map[string]string {
	all := map[string]string{}
	value, _ := v.([]any)
	if len(value) != 2 {
		return all
	}
	elements, _ := value[1].([]any)
	for _, e := range elements {
		if pair, ok := e.([]any); ok && len(pair) == 2 {
			all[text(pair[0])] = text(pair[1])
		}
	}
	return all
}
