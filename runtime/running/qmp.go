package running

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"strings"
	"time"
)

// qmpSocket finds in QEMU's arguments the path of the Unix socket on which it listens for QMP: -qmp
// unix:PATH,… or -chardev socket,id=ID,path=PATH,… with -mon chardev=ID,mode=control (qemu-system-x86_64(1)).
// It returns "" if none has a path, as under libvirt, which passes a file descriptor and names the threads.
func qmpSocket(argv []string) string {
	chardevs, monitor := map[string]string{}, ""
	for i := 0; i+1 < len(argv); i++ {
		option, ok := strings.CutPrefix(argv[i], "-")
		if !ok {
			continue
		}
		first, keys := options(argv[i+1])
		switch strings.TrimPrefix(option, "-") {
		case "qmp", "qmp-pretty":
			if at, ok := strings.CutPrefix(first, "unix:"); ok {
				return strings.TrimPrefix(at, "path=")
			}
		case "chardev":
			if first == "socket" && keys["abstract"] != "on" {
				chardevs[keys["id"]] = keys["path"]
			}
		case "mon":
			if keys["mode"] == "control" {
				monitor = strings.TrimPrefix(first, "chardev=")
				if id, ok := keys["chardev"]; ok {
					monitor = id
				}
			}
		}
	}
	return chardevs[monitor]
}

// options splits FIRST,key=value,…; a comma within a value is doubled.
func options(text string) (first string, keys map[string]string) {
	keys = map[string]string{}
	for i, part := range strings.Split(strings.ReplaceAll(text, ",,", "\x00"), ",") {
		part = strings.ReplaceAll(part, "\x00", ",")
		if i == 0 {
			first = part
		}
		key, value, _ := strings.Cut(part, "=")
		keys[key] = value
	}
	return first, keys
}

// qmpLimit is how long to wait for a QEMU. It serves one client at a time, and does not greet another one.
const qmpLimit = 2 * time.Second

// queryCPUs asks the QEMU with this process ID for the threads of its virtual CPUs: thread IDs in QEMU's PID
// namespace, by CPU index. socket is the path that QEMU sees.
func queryCPUs(pid int, socket string) (map[int]int, error) {
	seen := fmt.Sprintf("/proc/%d/root%s", pid, socket)
	if !path.IsAbs(socket) {
		seen = fmt.Sprintf("/proc/%d/cwd/%s", pid, socket)
	}
	dir, err := os.Open(path.Dir(seen))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	// The path of a socket has at most 107 bytes (unix(7)).
	conn, err := net.DialTimeout("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), path.Base(seen)), qmpLimit)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err = conn.SetDeadline(time.Now().Add(qmpLimit)); err != nil {
		return nil, err
	}
	return askCPUs(conn)
}

// askCPUs does the dialogue: greeting, handshake, query-cpus-fast (QEMU QMP reference).
func askCPUs(conn io.ReadWriter) (map[int]int, error) {
	replies := json.NewDecoder(io.LimitReader(conn, 4<<20))
	var greeting struct{ QMP *json.RawMessage }
	if err := replies.Decode(&greeting); err != nil || greeting.QMP == nil {
		return nil, errors.Join(errors.New("expected a greeting of QMP"), err)
	}
	var none json.RawMessage
	if err := execute(conn, replies, "qmp_capabilities", &none); err != nil {
		return nil, err
	}
	var cpus []struct {
		Index  *int `json:"cpu-index"`
		Thread *int `json:"thread-id"`
	}
	if err := execute(conn, replies, "query-cpus-fast", &cpus); err != nil {
		return nil, err
	}
	found := map[int]int{}
	for _, c := range cpus {
		if c.Index == nil || c.Thread == nil || *c.Index < 0 {
			return nil, errors.New("query-cpus-fast: expected cpu-index and thread-id")
		}
		found[*c.Index] = *c.Thread
	}
	return found, nil
}

// execute sends a command and decodes its reply, skipping events.
func execute(w io.Writer, replies *json.Decoder, command string, into any) error {
	if _, err := fmt.Fprintf(w, "{\"execute\":%q}\n", command); err != nil {
		return err
	}
	for {
		var reply struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Description string `json:"desc"`
			} `json:"error"`
		}
		switch err := replies.Decode(&reply); {
		case err != nil:
			return fmt.Errorf("%s: %w", command, err)
		case reply.Error != nil:
			return fmt.Errorf("%s: %s", command, reply.Error.Description)
		case reply.Return != nil:
			return json.Unmarshal(reply.Return, into)
		}
	}
}
