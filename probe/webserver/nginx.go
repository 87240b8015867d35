package webserver

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// MaxConnections is how many connections a server accepts at once.
const MaxConnections = 10000

// nginxConf is nginx's configuration, with paths relative to its prefix. Connections stay for the whole run,
// and the workers share them evenly (reuseport). Temporary files would go to Debian's directories.
const nginxConf = `%sdaemon off;
worker_processes %d;
pid nginx.pid;
error_log stderr error;
events { worker_connections %d; }
http {
	access_log off;
	sendfile on;
	tcp_nopush on;
	keepalive_requests 4000000000;
	keepalive_timeout 1d;
	default_type application/octet-stream;
	open_file_cache max=16 inactive=1d;
	open_file_cache_valid 1d;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	server {
		listen %s reuseport backlog=4096;
		root objects;
	}
}
`

// nginx writes nginx's configuration, and returns its command line.
func (s Settings) nginx(program string, addr netip.AddrPort, dir string) ([]string, error) {
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;\n" // others could not read a directory of root
	}
	text := fmt.Sprintf(nginxConf, user, s.Workers, MaxConnections+16, addr)
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(text), 0o644); err != nil {
		return nil, err
	}
	// The prefix is the working directory, because nginx would take a "$" in its name for a variable.
	return []string{program, "-e", "stderr", "-p", "./", "-c", "nginx.conf"}, nil
}
