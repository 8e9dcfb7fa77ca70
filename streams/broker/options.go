package broker

import (
	"errors"
	"net/url"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func serverOptions(config Config) (*server.Options, error) {
	o := &server.Options{
		ServerName:                 config.Cluster.Server,
		NoSigs:                     true,
		JetStream:                  true,
		StoreDir:                   config.StoreDir,
		SyncAlways:                 config.SyncAlways,
		JetStreamMaxStore:          config.MaxStoreBytes,
		MaxPayload:                 int32(config.MaxPayload),
		MaxPending:                 256 << 20,
		StreamMaxBufferedSize:      config.MaxBufferedBytes,
		WriteDeadline:              10 * time.Second,
		DisableShortFirstPing:      true,
		JetStreamRequestQueueLimit: 0,
	}
	o.DontListen = config.Listen == "" || config.Closed
	if config.Listen != "" {
		host, port, err := splitAddress(config.Listen)
		if err != nil {
			return nil, err
		}
		o.Host, o.Port = host, serverPort(port)
	}
	if config.Monitor != "" {
		host, port, err := splitAddress(config.Monitor)
		if err != nil {
			return nil, err
		}
		o.HTTPHost, o.HTTPPort = host, serverPort(port)
	}
	if config.TLS.Enabled() {
		t, err := config.TLS.Server()
		if err != nil {
			return nil, err
		}
		o.TLSConfig, o.TLS, o.TLSTimeout = t, true, 5
		o.TLSVerify = config.TLS.CA != ""
	}
	if err := clusterOptions(config, o); err != nil {
		return nil, err
	}
	if config.Keys != nil {
		if err := config.Keys.configureServer(o); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// clusterUser is the name under which a broker joins others; the secret lets it in.
const clusterUser = "weir"

func clusterOptions(config Config, o *server.Options) error {
	cluster := config.Cluster
	if cluster.Name == "" {
		return nil
	}
	host, port, err := splitAddress(cluster.Listen)
	if err != nil {
		return err
	}
	o.Cluster = server.ClusterOpts{Name: cluster.Name, Host: host, Port: serverPort(port), AuthTimeout: 5}
	if t := config.routeTLS(); t.Enabled() {
		if o.Cluster.TLSConfig, err = t.Server(); err != nil {
			return err
		}
		o.Cluster.TLSTimeout = 5
	}
	if config.Keys != nil {
		if config.Keys.secret == "" {
			return errors.New("configure broker: a cluster with keys needs its secret: name keys_dir")
		}
		o.Cluster.Username, o.Cluster.Password = clusterUser, config.Keys.secret
	}
	for _, r := range cluster.Routes {
		for _, u := range server.RoutesFromStr(r) {
			if config.Keys != nil {
				u.User = url.UserPassword(clusterUser, config.Keys.secret)
			}
			o.Routes = append(o.Routes, u)
		}
	}
	return nil
}

// serverPort turns our 0 into the server's -1; its own 0 is the default port.
func serverPort(port int) int {
	if port <= 0 {
		return server.RANDOM_PORT
	}
	return port
}
