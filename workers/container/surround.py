"""What a container needs around it before it is made: images, network, the agent's volume."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from kici_scaler.domain.networks import network_policy
from workers.container import networks, reach, runtime_volume
from workers.container.engine import Connection
from workers.container.images import Image, PullPolicy, Wanted
from workers.container.networks import AgentNetwork
from workers.container.plan import Surroundings
from workers.container.tools import Tools
from workers.contract import LifecycleKind, SpawnOrder
from workers.errors import Permanent
from workers.network.access import AgentAccess, Owner, agent_access

_IPV6 = Path("/proc/sys/net/ipv6")


class Surround:
    """Makes ready what one order needs; each step may be repeated."""

    def __init__(self, tools: Tools, connection: Connection, order: SpawnOrder) -> None:
        self._tools = tools
        self._connection = connection
        self._order = order
        self._owner = Owner(order.installation_id, order.agent_id)

    def images(self) -> Image:
        """The image of the label set, and the job's own beside it if it brings one."""
        order = self._order
        own = order.label_set.text("image")
        if not own:
            raise Permanent(
                f"label set {order.label_set.index} of `{order.scaler}` names no image",
                hint="set `image` on the label set",
            )
        policy = PullPolicy(order.label_set.text("imagePullPolicy") or PullPolicy.IF_NOT_PRESENT)
        image = self._tools.images.ensure(self._connection, Wanted(own, policy, self.tell))
        if order.job_image:
            wanted = Wanted(
                order.job_image,
                PullPolicy.IF_NOT_PRESENT,
                self.tell,
                order.registry,
                is_of_job=True,
            )
            self._tools.images.ensure(self._connection, wanted)
        return image

    def tell(self, detail: str) -> None:
        """Report a step on the way to the container."""
        self._order.tell(LifecycleKind.PROVISIONING, detail)

    def network(self) -> AgentNetwork | None:
        """The closed network; None when the scaler wants no isolation."""
        if self._order.options.get("networkIsolation") is False:
            return None
        network = networks.ensure(self._connection)
        self._tools.isolation.close(network.bridge, network.network, self._connection.deadline)
        return network

    def around(self, network: AgentNetwork | None, image: Image) -> Surroundings:
        """What the container is put into; `image` is the label set's."""
        volume = None
        if self._order.job_image:
            installation_id = self._order.installation_id
            volume = runtime_volume.make(self._connection, image.id, installation_id)
        policy = None if network is None else json.dumps(self.access(network, "").as_json())
        return Surroundings(
            place=self._connection.place,
            facts=self._connection.facts,
            network=networks.NAME if network else None,
            closes_ipv6=_IPV6.exists(),
            volume=volume,
            policy=policy,
        )

    def access(self, network: AgentNetwork, address: str) -> AgentAccess:
        """What the agent may reach once it has that address."""
        order = self.order_on(network)
        return agent_access(
            self._owner,
            address=address,
            gateway=network.gateway,
            policy=network_policy(order.label_set),
            gateway_url=order.gateway_url,
            gateway_addresses=reach.addresses_of(
                order.gateway_url, order.options, self._connection.deadline
            ),
        )

    def order_on(self, network: AgentNetwork | None) -> SpawnOrder:
        """The order with a gateway's URL that leads there from inside the network."""
        if network is None:
            return self._order
        url = reach.seen_from_inside(self._order.gateway_url, network.gateway)
        return replace(self._order, gateway_url=url)
